package io.tdcs.trust;

import alluxio.conf.AlluxioConfiguration;
import alluxio.util.network.tls.SslContextProvider;
import io.grpc.netty.GrpcSslContexts;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import java.io.IOException;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import javax.net.ssl.SSLException;

/**
 * TLS for all of Alluxio's gRPC, in which both ends show a certificate of the release's authority.
 *
 * <p>Alluxio takes it by the property {@code alluxio.network.tls.ssl.context.provider.classname}. The folder that the
 * system property {@code tdcs.trust} names holds tls.crt, tls.key and ca.crt. They are read again when they have
 * changed, and new connections have what is there then. Every server of the process also gets a {@link RoleGate}.
 */
public final class MutualTls implements SslContextProvider {
  /** The system property with the folder of the certificate. */
  private static final String FOLDER = "tdcs.trust";

  private static final String DEFAULT_FOLDER = "/etc/tdcs/trust";

  /** How often the files are looked at, in seconds. */
  private static final long LOOK_SECONDS = Long.getLong("tdcs.trust.seconds", 10);

  private static final String PROTOCOL = "TLSv1.3";

  private static TrustFiles files;

  @Override
  public void init(AlluxioConfiguration conf) {
    synchronized (MutualTls.class) {
      if (files == null) {
        try {
          files = new TrustFiles(Paths.get(System.getProperty(FOLDER, DEFAULT_FOLDER)));
          files.follow(LOOK_SECONDS);
        } catch (IOException | GeneralSecurityException failure) {
          throw new IllegalStateException("no certificate can be read, and without one nothing may run", failure);
        }
        RoleGate.install(); // before any server is made; fails when there is one
      }
    }
  }

  @Override
  public SslContext getClientSslContext() {
    return context(SslContextBuilder.forClient().keyManager(files.key));
  }

  @Override
  public SslContext getServerSSLContext() {
    return context(SslContextBuilder.forServer(files.key).clientAuth(ClientAuth.REQUIRE));
  }

  @Override
  public SslContext getSelfSignedClientSslContext() {
    throw new UnsupportedOperationException("no certificate signs itself here");
  }

  @Override
  public SslContext getSelfSignedServerSslContext() {
    throw new UnsupportedOperationException("no certificate signs itself here");
  }

  private static SslContext context(SslContextBuilder builder) {
    try {
      // By name: the automatic choice falls back to the JDK's engine, which is five to ten times as slow.
      return GrpcSslContexts.configure(builder, SslProvider.OPENSSL)
          .trustManager(files.trust)
          .protocols(PROTOCOL)
          .build();
    } catch (SSLException failure) {
      throw new IllegalStateException("these certificates cannot be used", failure);
    }
  }
}
