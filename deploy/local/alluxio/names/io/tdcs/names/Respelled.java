package io.tdcs.names;

import alluxio.underfs.UfsStatus;
import alluxio.underfs.UnderFileSystem;
import com.google.common.collect.Iterators;
import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;

/** A source as Alluxio may see it: paths go to the source in the source's spelling, names come back in Alluxio's. */
final class Respelled implements InvocationHandler {
  private static final String FILE = "file://";

  private final UnderFileSystem source;
  private final boolean files;

  private Respelled(UnderFileSystem source, boolean files) {
    this.source = source;
    this.files = files;
  }

  /** {@code files}: the source reads paths as Alluxio does, and must be led to some files by other ones. */
  static UnderFileSystem of(UnderFileSystem source, boolean files) {
    Class<?>[] kinds = {UnderFileSystem.class};
    ClassLoader loader = Respelled.class.getClassLoader();
    return (UnderFileSystem) Proxy.newProxyInstance(loader, kinds, new Respelled(source, files));
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    // This one only joins two paths for Alluxio.
    boolean inside = method.getName().equals("resolveUri");
    Object[] given = arguments == null ? new Object[0] : arguments.clone();
    List<Path> links = new ArrayList<>();
    try {
      for (int index = 0; !inside && index < given.length; index++) {
        if (given[index] instanceof String) {
          String path = Spelling.forSource((String) given[index]);
          given[index] = files && Spelling.isUnfit(path) ? linkTo(path, links) : path;
        }
      }
      return respelled(method.invoke(source, given));
    } catch (InvocationTargetException failure) {
      throw failure.getCause();
    } finally {
      for (Path link : links) {
        Files.deleteIfExists(link);
      }
    }
  }

  /** A path without unfit characters to the file at this one, for as long as the call lasts. */
  private static String linkTo(String path, List<Path> links) throws IOException {
    Path link = Paths.get(System.getProperty("java.io.tmpdir"), "tdcs-" + UUID.randomUUID());
    links.add(link);
    Files.createSymbolicLink(link, Paths.get(path.startsWith(FILE) ? path.substring(FILE.length()) : path));
    return link.toString();
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
