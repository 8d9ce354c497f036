package io.tdcs.names;

import alluxio.underfs.UfsStatus;
import alluxio.underfs.UnderFileSystem;
import alluxio.underfs.UnderFileSystemConfiguration;
import com.google.common.collect.Iterators;
import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Iterator;

/** A source as Alluxio may see it: paths go to the source in the source's spelling, names come back in Alluxio's. */
final class Respelled implements InvocationHandler {
  private final UnderFileSystem source;
  private final Confinement confinement;
  private final boolean files;

  private Respelled(UnderFileSystem source, Confinement confinement, boolean files) {
    this.source = source;
    this.confinement = confinement;
    this.files = files;
  }

  /**
   * A source as Alluxio may see it.
   *
   * @param mounted what of it was mounted, in Alluxio's spelling: nothing else is read
   * @param files whether it is a folder, and not a prefix of a bucket
   */
  static UnderFileSystem of(
      UnderFileSystem source, String mounted, UnderFileSystemConfiguration conf, boolean files) {
    Class<?>[] kinds = {UnderFileSystem.class};
    ClassLoader loader = Respelled.class.getClassLoader();
    Confinement confinement = new Confinement(Spelling.forSource(mounted), conf, files);
    return (UnderFileSystem) Proxy.newProxyInstance(loader, kinds, new Respelled(source, confinement, files));
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    // This one only joins two paths for Alluxio.
    boolean inside = method.getName().equals("resolveUri");
    Object[] given = arguments == null ? new Object[0] : arguments.clone();
    try {
      for (int index = 0; !inside && index < given.length; index++) {
        if (given[index] instanceof String) {
          String path = Spelling.forSource((String) given[index]);
          path = files ? path : MountScheme.forSource(path);
          if (isPath(method.getName(), index)) {
            check(method, path);
          }
          given[index] = path;
        }
      }
      return respelled(method.invoke(source, given));
    } catch (InvocationTargetException failure) {
      throw failure.getCause();
    }
  }

  /** Whether an argument that is a text names something of the source. */
  private static boolean isPath(String method, int index) {
    // The other two take the name of a host.
    boolean first = index == 0 && !method.startsWith("connectFrom");
    return first || index == 1 && method.startsWith("rename");
  }

  private void check(Method method, String path) throws IOException {
    try {
      confinement.check(path);
    } catch (IOException refusal) {
      for (Class<?> declared : method.getExceptionTypes()) {
        if (declared.isInstance(refusal)) {
          throw refusal;
        }
      }
      throw new IllegalArgumentException(refusal.getMessage(), refusal);
    }
  }

  private static Object respelled(Object answer) {
    if (answer instanceof UfsStatus) {
      UfsStatus status = (UfsStatus) answer;
      return status.getName() == null ? status : status.setName(Spelling.forAlluxio(status.getName()));
    }
    if (answer instanceof UfsStatus[]) {
      for (UfsStatus status : (UfsStatus[]) answer) {
        respelled(status);
      }
    }
    if (answer instanceof Iterator) { // only listings are iterators
      return Iterators.transform((Iterator<?>) answer, Respelled::respelled);
    }
    return answer;
  }
}
