package io.tdcs.names;

/**
 * Spells names that Alluxio cannot hold with characters that it can, and back again.
 *
 * <p>Alluxio takes what follows a question mark for a query, and a backslash for a slash: it leaves out files with the
 * one and misplaces those with the other. Its FUSE client cannot open what has a character beyond U+FFFF, such as an
 * emoji. Each of the two is spelled as the character of Unicode's private area that is 0xF000 above it, as Cygwin does,
 * and each half of a surrogate pair as the one 0x800 above it. Should a name have one of those characters itself, {@link
 * #ESCAPE} goes before it, so that no two names are ever spelled alike. {@code tdcs.alluxio.master} is the same
 * in Python.
 */
final class Spelling {
  private static final String UNFIT = "?\\";
  private static final char ESCAPE = '\uF000';
  private static final int HALVES = 0x800;

  private Spelling() {}

  /** How Alluxio knows what the source calls by this name or path. */
  static String forAlluxio(String name) {
    StringBuilder spelled = new StringBuilder(name.length() + 8);
    for (char character : name.toCharArray()) {
      if (UNFIT.indexOf(character) >= 0) {
        spelled.append((char) (ESCAPE + character));
      } else if (Character.isSurrogate(character)) {
        spelled.append((char) (HALVES + character));
      } else {
        if (isOurs(character)) {
          spelled.append(ESCAPE);
        }
        spelled.append(character);
      }
    }
    return spelled.toString();
  }

  /** How the source calls what Alluxio knows by this name or path. */
  static String forSource(String spelled) {
    StringBuilder name = new StringBuilder(spelled.length());
    for (int index = 0; index < spelled.length(); index++) {
      char character = spelled.charAt(index);
      if (character == ESCAPE && index + 1 < spelled.length()) {
        name.append(spelled.charAt(++index));
      } else if (isHalf(character)) {
        name.append((char) (character - HALVES));
      } else if (character != ESCAPE && isOurs(character)) {
        name.append((char) (character - ESCAPE));
      } else {
        name.append(character);
      }
    }
    return name.toString();
  }

  private static boolean isHalf(char character) {
    return character >= 0xE000 && character < 0xE000 + HALVES;
  }

  private static boolean isOurs(char character) {
    return character == ESCAPE
        || isHalf(character)
        || character > ESCAPE && UNFIT.indexOf(character - ESCAPE) >= 0;
  }
}
