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
 * {@code operator/tdcs/trust/alluxio_rights.toml}. What is not there is refused. With {@code ROLE@pod} callers of this
 * process's own pod alone may call the method; lines of {@code ROLE@stock} count where {@code -Dtdcs.stock=true} is given
 * alone, as the operator does in a CacheCluster of the profile Stock.
 */
final class Rights {
  /** The role of callers that have none. */
  static final String NONE = "none";

  private static final String ORGANIZATION = "tdcs.io";

  private static final String OWN_POD = "@pod";

  private static final String STOCK = "@stock";

  private final Map<String, Set<String>> anywhere = new HashMap<>();
  private final Map<String, Set<String>> ownPod = new HashMap<>();

  static Rights read() {
    Rights rights = new Rights();
    try (InputStream resource = Rights.class.getResourceAsStream("rights.txt")) {
      BufferedReader lines = new BufferedReader(new InputStreamReader(resource, StandardCharsets.UTF_8));
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.split(" ");
        if (words.length == 2) {
          rights.add(words[0], words[1]);
        }
      }
    } catch (IOException failure) {
      throw new UncheckedIOException(failure);
    }
    return rights;
  }

  private void add(String role, String method) {
    if (role.endsWith(STOCK)) {
      if (Boolean.getBoolean("tdcs.stock")) {
        add(role.substring(0, role.length() - STOCK.length()), method);
      }
      return;
    }
    boolean near = role.endsWith(OWN_POD);
    String name = near ? role.substring(0, role.length() - OWN_POD.length()) : role;
    (near ? ownPod : anywhere).computeIfAbsent(name, unused -> new HashSet<>()).add(method);
  }

  /** Whether a role may call a method from any pod. */
  boolean allow(String role, String method) {
    return anywhere.getOrDefault(role, Collections.emptySet()).contains(method);
  }

  /** Whether a role may call a method from this process's own pod. */
  boolean allowInPod(String role, String method) {
    return ownPod.getOrDefault(role, Collections.emptySet()).contains(method);
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
