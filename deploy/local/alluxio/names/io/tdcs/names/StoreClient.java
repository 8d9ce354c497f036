package io.tdcs.names;

import alluxio.conf.PropertyKey;
import alluxio.underfs.UnderFileSystem;
import alluxio.underfs.UnderFileSystemConfiguration;
import alluxio.underfs.s3a.S3AUnderFileSystem;
import com.amazonaws.AmazonWebServiceClient;
import com.amazonaws.ClientConfiguration;
import com.amazonaws.Request;
import com.amazonaws.auth.AWSCredentials;
import com.amazonaws.auth.AWSStaticCredentialsProvider;
import com.amazonaws.auth.AnonymousAWSCredentials;
import com.amazonaws.auth.BasicAWSCredentials;
import com.amazonaws.auth.BasicSessionCredentials;
import com.amazonaws.handlers.RequestHandler2;
import com.amazonaws.http.AmazonHttpClient;
import com.amazonaws.services.s3.AmazonS3Client;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.lang.reflect.Field;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;
import org.apache.http.conn.ssl.SSLConnectionSocketFactory;

/**
 * What Alluxio's S3 reader knows nothing of: buckets that are read without keys, session tokens, buckets whose requester
 * pays, and stores whose certificates an authority of one's own has issued.
 *
 * <p>{@code tdcs.alluxio.mount_properties} writes a mount's keys: without keys there is a mark in their place, and
 * behind the secret may follow lines of the token, of who pays and of authorities. Alluxio makes its client of them as it can, which
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
      if (lines.length > 3 && !lines[3].isEmpty()) {
        trust(client, Base64.getDecoder().decode(lines[3]));
      }
      field(AmazonS3Client.class, "awsCredentialsProvider")
          .set(client, new AWSStaticCredentialsProvider(credentials(account, lines)));
      if (lines.length > 2 && lines[2].equals(PAYS)) {
        addPayer(client);
      }
    } catch (ReflectiveOperationException | GeneralSecurityException | IOException failure) {
      throw new IllegalStateException("the S3 client cannot be given its credentials and authorities", failure);
    }
    return source;
  }

  private static AWSCredentials credentials(String account, String[] lines) {
    if (account.equals(NO_KEYS)) {
      return new AnonymousAWSCredentials();
    }
    if (lines.length < 2 || lines[1].isEmpty()) {
      return new BasicAWSCredentials(account, lines[0]);
    }
    return new BasicSessionCredentials(account, lines[0], lines[1]);
  }

  /** Has the client trust these authorities, in PEM, beside those of the JVM. */
  private static void trust(Object client, byte[] bundle)
      throws ReflectiveOperationException, GeneralSecurityException, IOException {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    int number = 0;
    for (X509Certificate known : known()) {
      store.setCertificateEntry("known-" + number++, known);
    }
    for (Certificate more :
        CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(bundle))) {
      store.setCertificateEntry("more-" + number++, more);
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    SSLContext tls = SSLContext.getInstance("TLS");
    tls.init(null, trust.getTrustManagers(), null);
    ClientConfiguration settings =
        new ClientConfiguration(
            (ClientConfiguration) field(AmazonWebServiceClient.class, "clientConfiguration").get(client));
    settings
        .getApacheHttpClientConfig()
        .setSslSocketFactory(
            new SSLConnectionSocketFactory(tls, SSLConnectionSocketFactory.getDefaultHostnameVerifier()));
    Field http = field(AmazonWebServiceClient.class, "client");
    AmazonHttpClient before = (AmazonHttpClient) http.get(client);
    http.set(client, new AmazonHttpClient(settings));
    before.shutdown();
  }

  private static List<X509Certificate> known() throws GeneralSecurityException {
    TrustManagerFactory plain = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    plain.init((KeyStore) null);
    List<X509Certificate> found = new ArrayList<>();
    for (TrustManager each : plain.getTrustManagers()) {
      if (each instanceof X509TrustManager) {
        found.addAll(Arrays.asList(((X509TrustManager) each).getAcceptedIssuers()));
      }
    }
    return found;
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
