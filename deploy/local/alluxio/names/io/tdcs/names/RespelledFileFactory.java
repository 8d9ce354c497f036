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
    return Respelled.of(plain.create(path, conf), path, conf, true);
  }

  @Override
  public boolean supportsPath(String path) {
    return plain.supportsPath(path);
  }
}
