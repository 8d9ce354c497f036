package io.tdcs.trust;

import io.grpc.util.AdvancedTlsX509KeyManager;
import io.grpc.util.AdvancedTlsX509TrustManager;
import io.grpc.util.CertificateUtils;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The certificate, key and authorities of a process, which follow their files.
 *
 * <p>gRPC has a way to follow files of its own. It takes a key and a certificate that do not belong together, when a
 * Secret changes between its two looks, and keeps them until the next change.
 */
final class TrustFiles {
  final AdvancedTlsX509KeyManager key = new AdvancedTlsX509KeyManager();

  /** Of servers it compares the host name, too. */
  final AdvancedTlsX509TrustManager trust;

  private static final Logger LOG = LoggerFactory.getLogger(TrustFiles.class);
  private static final byte[] SAMPLE = "sample".getBytes(StandardCharsets.US_ASCII);

  private final Path folder;
  private byte[][] known = {};

  /** Reads the files; fails when there is no certificate to run with. */
  TrustFiles(Path folder) throws IOException, GeneralSecurityException {
    this.folder = folder;
    trust = AdvancedTlsX509TrustManager.newBuilder().build();
    look();
  }

  /** Look again every so many seconds. */
  void follow(long seconds) {
    ScheduledExecutorService clock =
        Executors.newSingleThreadScheduledExecutor(
            task -> {
              Thread thread = new Thread(task, "tdcs-trust");
              thread.setDaemon(true);
              return thread;
            });
    clock.scheduleWithFixedDelay(this::lookAgain, seconds, seconds, TimeUnit.SECONDS);
  }

  private void lookAgain() {
    try {
      look();
    } catch (IOException | GeneralSecurityException | RuntimeException failure) {
      LOG.warn("a new certificate in {} is not used, the one before it is kept: {}", folder, failure.toString());
    }
  }

  private void look() throws IOException, GeneralSecurityException {
    // A mounted Secret changes by one link. Behind it all files are of one version.
    Path link = folder.resolve("..data");
    Path there = Files.exists(link) ? link.toRealPath() : folder;
    byte[][] found = {
      Files.readAllBytes(there.resolve("tls.key")),
      Files.readAllBytes(there.resolve("tls.crt")),
      Files.readAllBytes(there.resolve("ca.crt")),
    };
    if (Arrays.deepEquals(found, known)) {
      return;
    }
    PrivateKey newKey = CertificateUtils.getPrivateKey(new ByteArrayInputStream(found[0]));
    X509Certificate[] chain = CertificateUtils.getX509Certificates(new ByteArrayInputStream(found[1]));
    requirePair(newKey, chain[0]);
    trust.updateTrustCredentials(CertificateUtils.getX509Certificates(new ByteArrayInputStream(found[2])));
    key.updateIdentityCredentials(newKey, chain);
    known = found;
  }

  private static void requirePair(PrivateKey key, X509Certificate certificate) throws GeneralSecurityException {
    Signature signature = Signature.getInstance(key.getAlgorithm().equals("RSA") ? "SHA256withRSA" : "SHA256withECDSA");
    signature.initSign(key);
    signature.update(SAMPLE);
    byte[] signed = signature.sign();
    signature.initVerify(certificate.getPublicKey());
    signature.update(SAMPLE);
    if (!signature.verify(signed)) {
      throw new GeneralSecurityException("the key is not that of the certificate");
    }
  }
}
