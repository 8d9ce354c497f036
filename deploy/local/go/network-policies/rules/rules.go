// Package rules turns NetworkPolicies and pods into the nftables rules of one node. It reads nothing but its arguments.
package rules

import (
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Table is the nftables table that holds all rules; it is replaced as a whole.
const Table = "inet network-policies"

// World is what the rules follow from.
type World struct {
	// Node is the node that the rules are for.
	Node string
	// Pods are those of all nodes: others' pods are peers.
	Pods []*core.Pod
	// Namespaces are the labels of each namespace.
	Namespaces map[string]labels.Set
	Policies   []*networking.NetworkPolicy
}

// Ruleset is the input of `nft -f -` that makes a node enforce the policies. Equal worlds give equal texts, whatever
// the order of their pods and policies. An error names the policy with a selector that cannot be understood.
//
// What a node itself sends (kubelet's probes) is not judged, and connections that are open stay open.
func Ruleset(w World) (string, error) {
	var chains, forward, input strings.Builder
	for _, pod := range w.localPods() {
		for _, direction := range []networking.PolicyType{networking.PolicyTypeEgress, networking.PolicyTypeIngress} {
			isolated, lines, err := w.allowed(pod, direction)
			if err != nil {
				return "", err
			}
			if !isolated {
				continue
			}
			chain := strings.ToLower(string(direction)) + "-" + strings.ReplaceAll(pod.Status.PodIP, ".", "-")
			fmt.Fprintf(&chains, "  chain %s { # %s/%s\n", chain, pod.Namespace, pod.Name)
			for _, line := range lines {
				fmt.Fprintf(&chains, "    %sreturn\n", line)
			}
			chains.WriteString("    reject with icmpx admin-prohibited\n  }\n")
			jump := fmt.Sprintf("    ip %s %s jump %s\n", own(direction), pod.Status.PodIP, chain)
			forward.WriteString(jump)
			if direction == networking.PolicyTypeEgress {
				input.WriteString(jump) // to a port of the pod's own node
			}
		}
	}
	const open = "    ct state established,related accept\n"
	return fmt.Sprintf("table %[1]s\ndelete table %[1]s\ntable %[1]s {\n%[2]s"+
		"  chain forward {\n    type filter hook forward priority filter - 5;\n%[3]s%[4]s  }\n"+
		"  chain input {\n    type filter hook input priority filter - 5;\n%[3]s%[5]s  }\n}\n",
		Table, chains.String(), open, forward.String(), input.String()), nil
}

// localPods are the pods of the node, by address.
func (w World) localPods() []*core.Pod {
	var found []*core.Pod
	for _, pod := range w.Pods {
		if pod.Spec.NodeName == w.Node && live(pod) {
			found = append(found, pod)
		}
	}
	slices.SortFunc(found, func(a, b *core.Pod) int { return strings.Compare(a.Status.PodIP, b.Status.PodIP) })
	return found
}

// live says whether a pod has an address of its own: one that has ended has given it back.
func live(pod *core.Pod) bool {
	ended := pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed
	return !pod.Spec.HostNetwork && !ended && isIPv4(pod.Status.PodIP)
}

// allowed says whether any policy isolates a pod in a direction, and the matches of what is let through all the same.
func (w World) allowed(pod *core.Pod, direction networking.PolicyType) (bool, []string, error) {
	isolated, lines := false, []string{}
	for _, policy := range w.Policies {
		if policy.Namespace != pod.Namespace || !applies(policy, direction) {
			continue
		}
		selected, err := matches(&policy.Spec.PodSelector, pod.Labels)
		if err == nil && selected {
			isolated = true
			var more []string
			more, err = w.matchesOf(policy, direction, pod)
			lines = append(lines, more...)
		}
		if err != nil {
			return false, nil, fmt.Errorf("NetworkPolicy %s/%s: %w", policy.Namespace, policy.Name, err)
		}
	}
	slices.Sort(lines)
	return isolated, slices.Compact(lines), nil
}

// applies says whether a policy judges a direction; without policyTypes it follows from its rules, as in the API.
func applies(policy *networking.NetworkPolicy, direction networking.PolicyType) bool {
	if len(policy.Spec.PolicyTypes) == 0 {
		return direction == networking.PolicyTypeIngress || len(policy.Spec.Egress) > 0
	}
	return slices.Contains(policy.Spec.PolicyTypes, direction)
}

func (w World) matchesOf(policy *networking.NetworkPolicy, direction networking.PolicyType, pod *core.Pod) ([]string, error) {
	var lines []string
	add := func(given []networking.NetworkPolicyPeer, ports []networking.NetworkPolicyPort) error {
		found, err := w.peersOf(policy.Namespace, given)
		if err != nil {
			return err
		}
		if direction == networking.PolicyTypeIngress {
			lines = append(lines, ingressMatches(found, ports, pod)...)
		} else {
			lines = append(lines, egressMatches(found, ports)...)
		}
		return nil
	}
	if direction == networking.PolicyTypeIngress {
		for _, rule := range policy.Spec.Ingress {
			if err := add(rule.From, rule.Ports); err != nil {
				return nil, err
			}
		}
		return lines, nil
	}
	for _, rule := range policy.Spec.Egress {
		if err := add(rule.To, rule.Ports); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

func ingressMatches(from peers, ports []networking.NetworkPolicyPort, pod *core.Pod) []string {
	var lines []string
	for _, peer := range from.matches("saddr") {
		for _, port := range portMatches(ports, pod) {
			lines = append(lines, peer+port)
		}
	}
	return lines
}

// egressMatches resolves names of ports at each peer: they are the receiving pod's.
func egressMatches(to peers, ports []networking.NetworkPolicyPort) []string {
	numbered, named := split(ports)
	var lines []string
	if len(ports) == 0 || len(numbered) > 0 {
		for _, peer := range to.matches("daddr") {
			for _, port := range portMatches(numbered, nil) {
				lines = append(lines, peer+port)
			}
		}
	}
	if len(named) > 0 {
		for _, pod := range to.pods {
			for _, port := range portMatches(named, pod) {
				lines = append(lines, "ip daddr "+pod.Status.PodIP+" "+port)
			}
		}
	}
	return lines
}

// own is the side of a packet on which the judged pod is.
func own(direction networking.PolicyType) string {
	if direction == networking.PolicyTypeIngress {
		return "daddr"
	}
	return "saddr"
}
