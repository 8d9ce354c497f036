package io.tdcs.trust;

import alluxio.underfs.UnderFileSystem;
import alluxio.underfs.UnderFileSystemConfiguration;
import alluxio.underfs.UnderFileSystemFactory;
import alluxio.underfs.local.LocalUnderFileSystemFactory;
import alluxio.util.CommonUtils;
import java.io.FileNotFoundException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

/**
 * Alluxio's reader of folders, by which a worker reads none.
 *
 * <p>A request for a block carries the path at which it is to be read: without this it could name any file that the
 * worker sees. A master keeps its journal and its root in folders of its own; a worker has nothing to read there, for
 * what agents export lies below no mount.
 */
public final class MasterFolders implements UnderFileSystemFactory {
  private final UnderFileSystemFactory plain = new LocalUnderFileSystemFactory();

  @Override
  public UnderFileSystem create(String path, UnderFileSystemConfiguration conf) {
    UnderFileSystem folder = plain.create(path, conf);
    if (CommonUtils.PROCESS_TYPE.get() != CommonUtils.ProcessType.WORKER) {
      return folder;
    }
    // One that failed here would be passed over, and Alluxio's own taken.
    Class<?>[] kinds = {UnderFileSystem.class};
    return (UnderFileSystem)
        Proxy.newProxyInstance(
            MasterFolders.class.getClassLoader(),
            kinds,
            (proxy, method, arguments) -> {
              if (namesFile(method, arguments)) {
                throw new FileNotFoundException("a worker reads no folder: " + arguments[0]);
              }
              try {
                return method.invoke(folder, arguments);
              } catch (InvocationTargetException failure) {
                throw failure.getCause();
              }
            });
  }

  /** Whether a call is about a file; those that connect take the name of a host. */
  private static boolean namesFile(Method method, Object[] arguments) {
    boolean text = arguments != null && arguments.length > 0 && arguments[0] instanceof String;
    return text && !method.getName().startsWith("connectFrom");
  }

  @Override
  public boolean supportsPath(String path) {
    return plain.supportsPath(path);
  }
}
