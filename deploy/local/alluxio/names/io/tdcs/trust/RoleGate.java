package io.tdcs.trust;

import io.grpc.Grpc;
import io.grpc.InternalGlobalInterceptors;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Lets a caller do what the role in its certificate may do, and nothing else. */
final class RoleGate implements ServerInterceptor {
  private static final Logger LOG = LoggerFactory.getLogger(RoleGate.class);

  private final Rights rights = Rights.read();
  private final Set<String> logged = ConcurrentHashMap.newKeySet();

  /** Put a gate before every gRPC server that this process will make. Fails when it has made one already. */
  static void install() {
    InternalGlobalInterceptors.setInterceptorsTracers(
        Collections.emptyList(), Collections.singletonList(new RoleGate()), Collections.emptyList());
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    String method = call.getMethodDescriptor().getFullMethodName();
    String role = role(call.getAttributes().get(Grpc.TRANSPORT_ATTR_SSL_SESSION));
    boolean near = rights.allowInPod(role, method);
    if (rights.allow(role, method) || (near && inPod(call.getAttributes().get(Grpc.TRANSPORT_ATTR_REMOTE_ADDR)))) {
      return next.startCall(call, headers);
    }
    String reason = "the role " + role + " may not call " + method + (near ? " from another pod" : "");
    if (logged.add(reason)) {
      LOG.warn("refused: {}", reason);
    }
    call.close(Status.PERMISSION_DENIED.withDescription(reason), new Metadata());
    return new ServerCall.Listener<Q>() {};
  }

  /**
   * Whether a caller is in this process's pod: each pod has a loopback interface of its own, and the kernel drops what
   * comes to another one from such an address.
   */
  private static boolean inPod(SocketAddress caller) {
    return caller instanceof InetSocketAddress && ((InetSocketAddress) caller).getAddress().isLoopbackAddress();
  }

  private static String role(SSLSession session) {
    if (session == null) {
      return Rights.NONE;
    }
    try {
      Certificate shown = session.getPeerCertificates()[0];
      X509Certificate certificate = (X509Certificate) shown;
      certificate.checkValidity(); // connections last for days, and certificates are looked at when they begin only
      return Rights.role(certificate.getSubjectX500Principal());
    } catch (SSLPeerUnverifiedException | CertificateException | ClassCastException refused) {
      return Rights.NONE;
    }
  }
}
