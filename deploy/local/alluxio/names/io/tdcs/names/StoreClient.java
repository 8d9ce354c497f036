package io.tdcs.names;

import alluxio.conf.PropertyKey;
import alluxio.underfs.UnderFileSystem;
import alluxio.underfs.UnderFileSystemConfiguration;
import alluxio.underfs.s3a.S3AUnderFileSystem;
import com.amazonaws.AmazonWebServiceClient;
import com.amazonaws.Request;
import com.amazonaws.auth.AWSCredentials;
import com.amazonaws.auth.AWSStaticCredentialsProvider;
import com.amazonaws.auth.AnonymousAWSCredentials;
import com.amazonaws.auth.BasicAWSCredentials;
import com.amazonaws.auth.BasicSessionCredentials;
import com.amazonaws.handlers.RequestHandler2;
import com.amazonaws.services.s3.AmazonS3Client;
import java.lang.reflect.Field;
import java.util.List;

/**
 * What Alluxio's S3 reader knows nothing of: buckets that are read without keys, session tokens, and buckets whose
 * requester pays.
 *
 * <p>{@code tdcs.alluxio.mount_properties} writes a mount's keys: without keys there is a mark in their place, and
 * behind the secret may follow lines of the token and of who pays. Alluxio makes its client of them as it can, which
 * is given the right ones here, before its first request.
 */
final class StoreClient {
  private static final String NO_KEYS = "tdcs-without-keys";
  private static final String PAYS = "requester-pays";

  private StoreClient() {}

  /** The reader of a bucket with the credentials that are meant; it fails where it cannot be given these. */
  static UnderFileSystem withKeys(UnderFileSystem source, UnderFileSystemConfiguration conf) {
    if (!conf.isSet(PropertyKey.S3A_ACCESS_KEY) || !conf.isSet(PropertyKey.S3A_SECRET_KEY)) {
      return source;
    }
    String account = conf.getString(PropertyKey.S3A_ACCESS_KEY);
    String[] lines = conf.getString(PropertyKey.S3A_SECRET_KEY).split("\n", -1);
    if (!account.equals(NO_KEYS) && lines.length == 1) {
      return source;
    }
    try {
      Object client = field(S3AUnderFileSystem.class, "mClient").get(source);
      field(AmazonS3Client.class, "awsCredentialsProvider")
          .set(client, new AWSStaticCredentialsProvider(credentials(account, lines)));
      if (lines.length > 2 && lines[2].equals(PAYS)) {
        addPayer(client);
      }
    } catch (ReflectiveOperationException failure) {
      throw new IllegalStateException("the S3 client cannot be given its credentials", failure);
    }
    return source;
  }

  private static AWSCredentials credentials(String account, String[] lines) {
    if (account.equals(NO_KEYS)) {
      return new AnonymousAWSCredentials();
    }
    if (lines[1].isEmpty()) {
      return new BasicAWSCredentials(account, lines[0]);
    }
    return new BasicSessionCredentials(account, lines[0], lines[1]);
  }

  @SuppressWarnings("unchecked")
  private static void addPayer(Object client) throws ReflectiveOperationException {
    List<RequestHandler2> handlers =
        (List<RequestHandler2>) field(AmazonWebServiceClient.class, "requestHandler2s").get(client);
    handlers.add(
        new RequestHandler2() {
          @Override
          public void beforeRequest(Request<?> request) {
            request.addHeader("x-amz-request-payer", "requester");
          }
        });
  }

  private static Field field(Class<?> owner, String name) throws NoSuchFieldException {
    Field found = owner.getDeclaredField(name);
    found.setAccessible(true);
    return found;
  }
}
