package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// peers are the other side of a rule.
type peers struct {
	// all: the rule names no peer and so means every address.
	all bool
	// pods are those that are meant by selectors; all pods where the rule names no peer.
	pods   []*core.Pod
	blocks []networking.IPBlock
}

func (w World) peersOf(namespace string, given []networking.NetworkPolicyPeer) (peers, error) {
	found := peers{all: len(given) == 0}
	for _, pod := range w.Pods {
		if !live(pod) {
			continue
		}
		meant := found.all
		for _, peer := range given {
			selected, err := w.selects(peer, pod, namespace)
			if err != nil {
				return peers{}, err
			}
			meant = meant || selected
		}
		if meant {
			found.pods = append(found.pods, pod)
		}
	}
	for _, peer := range given {
		if peer.IPBlock != nil {
			found.blocks = append(found.blocks, *peer.IPBlock)
		}
	}
	return found, nil
}

// selects says whether a peer of a policy's rule is this pod. Without a selector of namespaces it is one of the
// policy's own.
func (w World) selects(peer networking.NetworkPolicyPeer, pod *core.Pod, namespace string) (bool, error) {
	if peer.IPBlock != nil {
		return false, nil
	}
	if peer.NamespaceSelector == nil && pod.Namespace != namespace {
		return false, nil
	}
	if peer.NamespaceSelector != nil {
		if inside, err := matches(peer.NamespaceSelector, w.Namespaces[pod.Namespace]); err != nil || !inside {
			return false, err
		}
	}
	if peer.PodSelector == nil {
		return true, nil
	}
	return matches(peer.PodSelector, pod.Labels)
}

// matches are the beginnings of rules, one for the pods and one for each block; none where nothing is meant.
func (p peers) matches(side string) []string {
	if p.all {
		return []string{""}
	}
	var found, addresses []string
	for _, pod := range p.pods {
		addresses = append(addresses, pod.Status.PodIP)
	}
	if len(addresses) > 0 {
		found = append(found, fmt.Sprintf("ip %s { %s } ", side, list(addresses)))
	}
	for _, block := range p.blocks {
		if !isIPv4(block.CIDR) {
			continue // no pod of the local cluster has another kind of address
		}
		match := fmt.Sprintf("ip %s %s ", side, block.CIDR)
		if except := slices.DeleteFunc(slices.Clone(block.Except), func(s string) bool { return !isIPv4(s) }); len(except) > 0 {
			match += fmt.Sprintf("ip %s != { %s } ", side, list(except))
		}
		found = append(found, match)
	}
	return found
}

// portMatches are the ends of rules: one that fits every port where none is given. A name is a port of `pod`, and
// fits nothing where that has none of this name.
func portMatches(ports []networking.NetworkPolicyPort, pod *core.Pod) []string {
	if len(ports) == 0 {
		return []string{""}
	}
	var found []string
	for _, port := range ports {
		protocol := core.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		word := strings.ToLower(string(protocol))
		switch {
		case port.Port == nil:
			found = append(found, fmt.Sprintf("meta l4proto %s ", word))
		case port.Port.Type == intstr.String:
			for _, number := range numbers(pod, port.Port.StrVal, protocol) {
				found = append(found, fmt.Sprintf("%s dport %d ", word, number))
			}
		case port.EndPort != nil:
			found = append(found, fmt.Sprintf("%s dport %d-%d ", word, port.Port.IntVal, *port.EndPort))
		default:
			found = append(found, fmt.Sprintf("%s dport %d ", word, port.Port.IntVal))
		}
	}
	return found
}

// numbers are the ports of a pod's containers, init containers that stay included, that have a name.
func numbers(pod *core.Pod, name string, protocol core.Protocol) []int32 {
	var found []int32
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, port := range container.Ports {
			same := port.Protocol == protocol || (port.Protocol == "" && protocol == core.ProtocolTCP)
			if port.Name == name && same {
				found = append(found, port.ContainerPort)
			}
		}
	}
	return found
}

func split(ports []networking.NetworkPolicyPort) (numbered, named []networking.NetworkPolicyPort) {
	for _, port := range ports {
		if port.Port != nil && port.Port.Type == intstr.String {
			named = append(named, port)
		} else {
			numbered = append(numbered, port)
		}
	}
	return numbered, named
}

func matches(selector *meta.LabelSelector, set labels.Set) (bool, error) {
	parsed, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	return parsed.Matches(set), nil
}

func list(texts []string) string {
	sorted := slices.Clone(texts)
	slices.Sort(sorted)
	return strings.Join(slices.Compact(sorted), ", ")
}

// isIPv4 says whether a text is an IPv4 address or network. Nothing else gets into a rule's text.
func isIPv4(text string) bool {
	if network, err := netip.ParsePrefix(text); err == nil {
		return network.Addr().Is4()
	}
	address, err := netip.ParseAddr(text)
	return err == nil && address.Is4()
}
