package io.tdcs.names;

import alluxio.underfs.UnderFileSystem;
import alluxio.underfs.UnderFileSystemConfiguration;
import alluxio.underfs.UnderFileSystemFactory;
import alluxio.underfs.local.LocalUnderFileSystemFactory;

/** Alluxio's reader of folders, in which every file has a name that Alluxio can hold. */
public final class RespelledFileFactory implements UnderFileSystemFactory {
  private final UnderFileSystemFactory plain = new LocalUnderFileSystemFactory();

  @Override
  public UnderFileSystem create(String path, UnderFileSystemConfiguration conf) {
    UnderFileSystem source = Confinement.confines(conf) ? new SharedFolder(path, conf) : plain.create(path, conf);
    return Respelled.of(source, path, conf, true);
  }

  @Override
  public boolean supportsPath(String path) {
    return plain.supportsPath(path);
  }
}
