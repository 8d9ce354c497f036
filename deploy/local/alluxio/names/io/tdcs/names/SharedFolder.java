package io.tdcs.names;

import alluxio.AlluxioURI;
import alluxio.conf.PropertyKey;
import alluxio.underfs.UfsDirectoryStatus;
import alluxio.underfs.UfsFileStatus;
import alluxio.underfs.UfsStatus;
import alluxio.underfs.UnderFileSystemConfiguration;
import alluxio.underfs.local.LocalUnderFileSystem;
import alluxio.underfs.options.GetFileStatusOptions;
import alluxio.underfs.options.OpenOptions;
import alluxio.util.UnderFileSystemUtils;
import alluxio.util.io.FileUtils;
import java.io.BufferedInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.Channels;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * A shared folder as a source. Who may write to it can lead Alluxio nowhere else by symbolic links.
 *
 * <p>A link to a file of the same folder is that file. No other link is there: one that leads out, and one to a folder,
 * by which a few files would have any number of names. Folders and files are opened step by step without links, so it
 * does not matter what is exchanged for one after it was looked at.
 */
final class SharedFolder extends LocalUnderFileSystem {
  private static final String FILE = "file://";

  private final Path root;

  SharedFolder(String mounted, UnderFileSystemConfiguration conf) {
    super(new AlluxioURI(mounted), conf);
    root = plain(Spelling.forSource(mounted));
  }

  /** A path without the scheme and without steps back. */
  static Path plain(String path) {
    return Paths.get(path.startsWith(FILE) ? path.substring(FILE.length()) : path).normalize();
  }

  @Override
  public UfsStatus[] listStatus(String path) throws IOException {
    List<UfsStatus> found = new ArrayList<>();
    try {
      Path folder = real(path);
      try (SecureDirectoryStream<Path> entries = opened(folder)) {
        for (Path entry : entries) {
          UfsStatus status = statusIn(folder, entries, entry.getFileName());
          if (status != null) {
            found.add(status);
          }
        }
      }
    } catch (DirectoryIteratorException failure) {
      throw failure.getCause();
    } catch (NoSuchFileException | NotDirectoryException none) {
      return null;
    }
    return found.toArray(new UfsStatus[0]);
  }

  @Override
  public InputStream open(String path, OpenOptions options) throws IOException {
    try {
      Path file = real(path);
      SeekableByteChannel content;
      try (SecureDirectoryStream<Path> above = opened(file.getParent())) {
        content =
            above.newByteChannel(
                file.getFileName(), Set.of(StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS));
      }
      content.position(options.getOffset());
      return new BufferedInputStream(Channels.newInputStream(content));
    } catch (FileSystemException failure) {
      throw notFound(failure);
    }
  }

  @Override
  public UfsStatus getStatus(String path) throws IOException {
    PosixFileAttributes found = attributes(path);
    return found.isDirectory() ? folder(path, found) : file(path, found);
  }

  @Override
  public UfsFileStatus getFileStatus(String path, GetFileStatusOptions options) throws IOException {
    PosixFileAttributes found = attributes(path);
    if (found.isDirectory()) {
      throw new IOException(path + " is a folder, not a file");
    }
    return file(path, found);
  }

  @Override
  public UfsDirectoryStatus getDirectoryStatus(String path) throws IOException {
    PosixFileAttributes found = attributes(path);
    if (!found.isDirectory()) {
      throw new IOException(path + " is no folder");
    }
    return folder(path, found);
  }

  @Override
  public boolean exists(String path) throws IOException {
    return attributesOrNull(path) != null;
  }

  @Override
  public boolean isDirectory(String path) throws IOException {
    PosixFileAttributes found = attributesOrNull(path);
    return found != null && found.isDirectory();
  }

  @Override
  public boolean isFile(String path) throws IOException {
    PosixFileAttributes found = attributesOrNull(path);
    return found != null && found.isRegularFile();
  }

  private PosixFileAttributes attributesOrNull(String path) throws IOException {
    try {
      return attributes(path);
    } catch (FileNotFoundException none) {
      return null;
    }
  }

  private PosixFileAttributes attributes(String path) throws IOException {
    try {
      return attributesOf(real(path));
    } catch (FileSystemException failure) {
      throw notFound(failure);
    }
  }

  /** Where a path leads; it fails where that is not below the folder, or the folder is not where its path says. */
  private Path real(String path) throws IOException {
    if (!root.toRealPath().equals(root)) {
      throw new IOException(
          root + " is, or lies behind, a symbolic link: name the folder that it leads to in spec.source.uri");
    }
    Path found = plain(path).toRealPath();
    if (!found.startsWith(root)) {
      throw new FileNotFoundException(path + " leads out of what was mounted, " + root);
    }
    return found;
  }

  /** What a name in an open folder stands for; null for what is no file or folder of the source. */
  private UfsStatus statusIn(Path folder, SecureDirectoryStream<Path> entries, Path name) throws IOException {
    PosixFileAttributes found;
    try {
      found = attributesIn(entries, name);
    } catch (NoSuchFileException gone) {
      return null;
    }
    if (found.isSymbolicLink()) {
      try {
        found = attributesOf(real(folder.resolve(name).toString()));
      } catch (FileNotFoundException | FileSystemException elsewhere) {
        return null;
      }
      if (!found.isRegularFile()) {
        return null;
      }
    }
    if (found.isDirectory()) {
      return folder(name.toString(), found);
    }
    return found.isRegularFile() ? file(name.toString(), found) : null;
  }

  private static PosixFileAttributes attributesOf(Path real) throws IOException {
    if (real.getParent() == null) {
      return Files.readAttributes(real, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    }
    try (SecureDirectoryStream<Path> above = opened(real.getParent())) {
      return attributesIn(above, real.getFileName());
    }
  }

  private static PosixFileAttributes attributesIn(SecureDirectoryStream<Path> folder, Path name)
      throws IOException {
    return folder
        .getFileAttributeView(name, PosixFileAttributeView.class, LinkOption.NOFOLLOW_LINKS)
        .readAttributes();
  }

  /** A folder, by its path without links; it fails where one is on the way by now. */
  private static SecureDirectoryStream<Path> opened(Path folder) throws IOException {
    SecureDirectoryStream<Path> at = (SecureDirectoryStream<Path>) Files.newDirectoryStream(folder.getRoot());
    for (Path step : folder) {
      try (SecureDirectoryStream<Path> above = at) {
        at = above.newDirectoryStream(step, LinkOption.NOFOLLOW_LINKS);
      }
    }
    return at;
  }

  private UfsFileStatus file(String name, PosixFileAttributes found) {
    long changed = found.lastModifiedTime().toMillis();
    return new UfsFileStatus(
        name,
        UnderFileSystemUtils.approximateContentHash(found.size(), changed),
        found.size(),
        changed,
        found.owner().getName(),
        found.group().getName(),
        FileUtils.translatePosixPermissionToMode(found.permissions()),
        mUfsConf.getBytes(PropertyKey.USER_BLOCK_SIZE_BYTES_DEFAULT));
  }

  private static UfsDirectoryStatus folder(String name, PosixFileAttributes found) {
    return new UfsDirectoryStatus(
        name,
        found.owner().getName(),
        found.group().getName(),
        FileUtils.translatePosixPermissionToMode(found.permissions()),
        found.lastModifiedTime().toMillis());
  }

  private static FileNotFoundException notFound(FileSystemException failure) {
    FileNotFoundException none = new FileNotFoundException(failure.getMessage());
    none.initCause(failure);
    return none;
  }
}
