package io.tdcs.trust;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.naming.InvalidNameException;
import javax.naming.ldap.LdapName;
import javax.naming.ldap.Rdn;
import javax.security.auth.x500.X500Principal;

/**
 * Which role may call what, from the resource {@code rights.txt}: lines of {@code ROLE SERVICE/METHOD}, made from
 * {@code operator/tdcs/trust/alluxio_rights.toml}. What is not there is refused.
 */
final class Rights {
  /** The role of callers that have none. */
  static final String NONE = "none";

  private static final String ORGANIZATION = "tdcs.io";

  private final Map<String, Set<String>> methods = new HashMap<>();

  static Rights read() {
    Rights rights = new Rights();
    try (InputStream resource = Rights.class.getResourceAsStream("rights.txt")) {
      BufferedReader lines = new BufferedReader(new InputStreamReader(resource, StandardCharsets.UTF_8));
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.split(" ");
        if (words.length == 2) {
          rights.methods.computeIfAbsent(words[0], role -> new HashSet<>()).add(words[1]);
        }
      }
    } catch (IOException failure) {
      throw new UncheckedIOException(failure);
    }
    return rights;
  }

  boolean allow(String role, String method) {
    return methods.getOrDefault(role, Collections.emptySet()).contains(method);
  }

  /** The role in a subject: the only common name, where the only organisation is ours. */
  static String role(X500Principal subject) {
    List<String> names = new ArrayList<>();
    List<String> organizations = new ArrayList<>();
    try {
      for (Rdn part : new LdapName(subject.getName()).getRdns()) {
        if (part.getType().equalsIgnoreCase("CN")) {
          names.add(String.valueOf(part.getValue()));
        } else if (part.getType().equalsIgnoreCase("O")) {
          organizations.add(String.valueOf(part.getValue()));
        }
      }
    } catch (InvalidNameException refused) {
      return NONE;
    }
    boolean ours = organizations.size() == 1 && ORGANIZATION.equals(organizations.get(0));
    return ours && names.size() == 1 ? names.get(0) : NONE;
  }
}
