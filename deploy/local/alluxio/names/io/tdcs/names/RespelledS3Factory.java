package io.tdcs.names;

import alluxio.underfs.UnderFileSystem;
import alluxio.underfs.UnderFileSystemConfiguration;
import alluxio.underfs.UnderFileSystemFactory;
import alluxio.underfs.s3a.S3AUnderFileSystemFactory;

/** Alluxio's S3 reader, in which every object has a name that Alluxio can hold. */
public final class RespelledS3Factory implements UnderFileSystemFactory {
  private final UnderFileSystemFactory plain = new S3AUnderFileSystemFactory();

  @Override
  public UnderFileSystem create(String path, UnderFileSystemConfiguration conf) {
    String source = MountScheme.forSource(path);
    return Respelled.of(StoreClient.withKeys(plain.create(source, conf), conf), source, conf, false);
  }

  @Override
  public boolean supportsPath(String path) {
    return path != null && plain.supportsPath(MountScheme.forSource(path));
  }
}
