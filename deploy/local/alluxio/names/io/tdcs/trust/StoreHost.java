package io.tdcs.trust;

import com.amazonaws.Request;
import com.amazonaws.SdkClientException;
import com.amazonaws.handlers.HandlerBeforeAttemptContext;
import com.amazonaws.handlers.HandlerContextKey;
import com.amazonaws.handlers.RequestHandler2;
import java.net.URI;
import java.util.regex.Pattern;

/**
 * Keeps a request to a store at the host that it began with.
 *
 * <p>Amazon's client follows a 307 to whatever host the answer names, signed anew for it: a store of a tenant could send
 * masters and workers to any address that they reach. The client reads the name of this class from the resource {@code
 * com/amazonaws/global/handlers/request.handler2s} and works with no client that lacks it.
 *
 * <p>Amazon's own S3 names the region of a bucket that way, so one of its hosts may lead to another of them.
 */
public final class StoreHost extends RequestHandler2 {
  private static final HandlerContextKey<URI> FIRST = new HandlerContextKey<>("tdcs.store.endpoint");
  private static final Pattern AMAZON_S3 =
      Pattern.compile("(?:[a-z0-9.-]+\\.)?s3(?:[.-][a-z0-9-]+)*\\.amazonaws\\.com(?:\\.cn)?");

  @Override
  public void beforeAttempt(HandlerBeforeAttemptContext context) {
    Request<?> request = context.getRequest();
    URI now = request.getEndpoint();
    URI first = request.getHandlerContext(FIRST);
    if (first == null) {
      request.addHandlerContext(FIRST, now);
    } else if (!isSameStore(first, now)) {
      throw new SdkClientException(
          "the store at " + first.getAuthority() + " redirects to another host, " + now.getAuthority()
              + ", which is not followed");
    }
  }

  private static boolean isSameStore(URI first, URI now) {
    if (!String.valueOf(first.getScheme()).equalsIgnoreCase(now.getScheme())) {
      return false;
    }
    if (String.valueOf(first.getAuthority()).equalsIgnoreCase(now.getAuthority())) {
      return true;
    }
    return isAmazons(first) && isAmazons(now);
  }

  private static boolean isAmazons(URI endpoint) {
    String host = endpoint.getHost();
    boolean plain = endpoint.getUserInfo() == null && endpoint.getPort() == -1;
    return plain && host != null && AMAZON_S3.matcher(host.toLowerCase()).matches();
  }
}
