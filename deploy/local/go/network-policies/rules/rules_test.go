package rules

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const reject = "reject with icmpx admin-prohibited"

func pod(namespace, name, ip string, set map[string]string) *core.Pod {
	return &core.Pod{
		ObjectMeta: meta.ObjectMeta{Namespace: namespace, Name: name, Labels: set},
		Spec: core.PodSpec{NodeName: "here", Containers: []core.Container{{Ports: []core.ContainerPort{
			{Name: "rpc", ContainerPort: 19998, Protocol: core.ProtocolTCP},
			{Name: "rpc", ContainerPort: 19997, Protocol: core.ProtocolUDP},
		}}}},
		Status: core.PodStatus{PodIP: ip, Phase: core.PodRunning},
	}
}

func selector(key, value string) *meta.LabelSelector {
	return &meta.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// world has a master, which the policy is about, a client beside it, and a stranger in another namespace.
func world(policies ...networking.NetworkPolicySpec) World {
	w := World{Node: "here", Namespaces: map[string]labels.Set{"tdcs": {"team": "tdcs"}, "other": {"team": "other"}}}
	w.Pods = []*core.Pod{
		pod("other", "stranger", "10.0.0.9", map[string]string{"app": "client"}),
		pod("tdcs", "client", "10.0.0.2", map[string]string{"app": "client"}),
		pod("tdcs", "master", "10.0.0.1", map[string]string{"app": "master"}),
	}
	for _, spec := range policies {
		spec.PodSelector = *selector("app", "master")
		w.Policies = append(w.Policies, &networking.NetworkPolicy{
			ObjectMeta: meta.ObjectMeta{Namespace: "tdcs", Name: "p"}, Spec: spec})
	}
	return w
}

// chain is what a chain of the rules says; nil when there is none.
func chain(t *testing.T, w World, name string) []string {
	t.Helper()
	text, err := Ruleset(w)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(text, "  chain "+name+" {")
	if !found {
		return nil
	}
	body, _, _ := strings.Cut(rest, "\n  }")
	var lines []string
	for _, line := range strings.Split(body, "\n")[1:] {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

func ingress(rules ...networking.NetworkPolicyIngressRule) networking.NetworkPolicySpec {
	return networking.NetworkPolicySpec{Ingress: rules, PolicyTypes: []networking.PolicyType{networking.PolicyTypeIngress}}
}

func egress(rules ...networking.NetworkPolicyEgressRule) networking.NetworkPolicySpec {
	return networking.NetworkPolicySpec{Egress: rules, PolicyTypes: []networking.PolicyType{networking.PolicyTypeEgress}}
}

func port(value intstr.IntOrString) []networking.NetworkPolicyPort {
	return []networking.NetworkPolicyPort{{Port: &value}}
}

func TestWhatComesToAPod(t *testing.T) {
	udp, end := core.ProtocolUDP, int32(29999)
	low := intstr.FromInt32(29990)
	for name, test := range map[string]struct {
		policies []networking.NetworkPolicySpec
		want     []string
	}{
		"without a policy everything": {nil, nil},
		"by a policy without rules nothing": {
			[]networking.NetworkPolicySpec{ingress()}, []string{reject}},
		"by a policy for the other direction everything": {
			[]networking.NetworkPolicySpec{egress()}, nil},
		"by an empty rule everything": {
			[]networking.NetworkPolicySpec{ingress(networking.NetworkPolicyIngressRule{})}, []string{"return", reject}},
		"from pods of the policy's own namespace": {
			[]networking.NetworkPolicySpec{ingress(networking.NetworkPolicyIngressRule{
				From: []networking.NetworkPolicyPeer{{PodSelector: selector("app", "client")}}})},
			[]string{"ip saddr { 10.0.0.2 } return", reject}},
		"from pods of a namespace with a label": {
			[]networking.NetworkPolicySpec{ingress(networking.NetworkPolicyIngressRule{
				From: []networking.NetworkPolicyPeer{{NamespaceSelector: selector("team", "other")}}})},
			[]string{"ip saddr { 10.0.0.9 } return", reject}},
		"from pods with a label in a namespace with another": {
			[]networking.NetworkPolicySpec{ingress(networking.NetworkPolicyIngressRule{
				From: []networking.NetworkPolicyPeer{{NamespaceSelector: selector("team", "tdcs"), PodSelector: selector("app", "client")}}})},
			[]string{"ip saddr { 10.0.0.2 } return", reject}},
		"from nobody when no pod fits, and not from everybody": {
			[]networking.NetworkPolicySpec{ingress(networking.NetworkPolicyIngressRule{
				From: []networking.NetworkPolicyPeer{{PodSelector: selector("app", "none")}}})},
			[]string{reject}},
		"to a port by number, range, name and protocol": {
			[]networking.NetworkPolicySpec{ingress(networking.NetworkPolicyIngressRule{Ports: slices.Concat(
				port(intstr.FromInt32(80)), port(intstr.FromString("rpc")), port(intstr.FromString("none")),
				[]networking.NetworkPolicyPort{{Protocol: &udp}, {Port: &low, EndPort: &end}})})},
			[]string{"meta l4proto udp return", "tcp dport 19998 return", "tcp dport 29990-29999 return", "tcp dport 80 return", reject}},
		"to no port when its name is none of the pod's": {
			[]networking.NetworkPolicySpec{ingress(networking.NetworkPolicyIngressRule{Ports: port(intstr.FromString("none"))})},
			[]string{reject}},
		"what any of several policies lets through": {
			[]networking.NetworkPolicySpec{
				ingress(),
				ingress(networking.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(80))}),
				ingress(networking.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(81))}),
				ingress(networking.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(80))})},
			[]string{"tcp dport 80 return", "tcp dport 81 return", reject}},
		"from a network but for parts of it, each network by itself": {
			[]networking.NetworkPolicySpec{ingress(networking.NetworkPolicyIngressRule{From: []networking.NetworkPolicyPeer{
				{IPBlock: &networking.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"169.254.0.0/16", "fe80::/10"}}},
				{IPBlock: &networking.IPBlock{CIDR: "169.254.20.10/32"}},
				{IPBlock: &networking.IPBlock{CIDR: "::/0"}}}})},
			[]string{"ip saddr 0.0.0.0/0 ip saddr != { 169.254.0.0/16 } return", "ip saddr 169.254.20.10/32 return", reject}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := chain(t, world(test.policies...), "ingress-10-0-0-1"); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWhatAPodSends(t *testing.T) {
	for name, test := range map[string]struct {
		rule networking.NetworkPolicyEgressRule
		want []string
	}{
		"to a port by number, wherever": {
			networking.NetworkPolicyEgressRule{Ports: port(intstr.FromInt32(443))}, []string{"tcp dport 443 return", reject}},
		"to a port by the name that the receiving pod gives it": {
			networking.NetworkPolicyEgressRule{
				To:    []networking.NetworkPolicyPeer{{PodSelector: selector("app", "client")}},
				Ports: port(intstr.FromString("rpc"))},
			[]string{"ip daddr 10.0.0.2 tcp dport 19998 return", reject}},
		"to every port of a peer": {
			networking.NetworkPolicyEgressRule{To: []networking.NetworkPolicyPeer{{PodSelector: selector("app", "client")}}},
			[]string{"ip daddr { 10.0.0.2 } return", reject}},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(egress(test.rule))
			if got := chain(t, w, "egress-10-0-0-1"); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			jump := "ip saddr 10.0.0.1 jump egress-10-0-0-1"
			for _, hook := range []string{"forward", "input"} {
				if !slices.Contains(chain(t, w, hook), jump) {
					t.Errorf("%s does not lead there", hook)
				}
			}
		})
	}
}

func TestPolicyTypesFollowFromTheRulesWhereNoneAreGiven(t *testing.T) {
	both := world(networking.NetworkPolicySpec{Egress: []networking.NetworkPolicyEgressRule{{}}})
	if chain(t, both, "ingress-10-0-0-1") == nil || chain(t, both, "egress-10-0-0-1") == nil {
		t.Error("a policy with egress rules judges both directions")
	}
	one := world(networking.NetworkPolicySpec{})
	if chain(t, one, "ingress-10-0-0-1") == nil || chain(t, one, "egress-10-0-0-1") != nil {
		t.Error("a policy without egress rules judges what comes in only")
	}
}

func TestPodsThatAreNotJudged(t *testing.T) {
	for name, change := range map[string]func(*core.Pod){
		"of another node":               func(p *core.Pod) { p.Spec.NodeName = "there" },
		"in the node's network":         func(p *core.Pod) { p.Spec.HostNetwork = true },
		"that has ended":                func(p *core.Pod) { p.Status.Phase = core.PodSucceeded },
		"without an address":            func(p *core.Pod) { p.Status.PodIP = "" },
		"with something else for it":    func(p *core.Pod) { p.Status.PodIP = "1.2.3.4; flush ruleset" },
		"of another policy's namespace": func(p *core.Pod) { p.Namespace = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			w := world(ingress())
			change(w.Pods[2])
			text, err := Ruleset(w)
			if err != nil || strings.Contains(text, "jump") || strings.Contains(text, "flush") {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

func TestAPodThatHasEndedIsNoPeer(t *testing.T) {
	w := world(ingress(networking.NetworkPolicyIngressRule{
		From: []networking.NetworkPolicyPeer{{PodSelector: selector("app", "client")}}}))
	w.Pods[1].Status.Phase = core.PodFailed
	if got := chain(t, w, "ingress-10-0-0-1"); !slices.Equal(got, []string{reject}) {
		t.Errorf("got %q", got)
	}
}

func TestTheOrderOfPodsAndPoliciesChangesNothing(t *testing.T) {
	w := world(
		ingress(networking.NetworkPolicyIngressRule{From: []networking.NetworkPolicyPeer{{NamespaceSelector: &meta.LabelSelector{}}}}),
		ingress(networking.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(80))}))
	first, _ := Ruleset(w)
	slices.Reverse(w.Pods)
	slices.Reverse(w.Policies)
	if second, _ := Ruleset(w); first != second {
		t.Errorf("%s\n%s", first, second)
	}
}

func TestASelectorThatCannotBeUnderstoodIsAnErrorWithThePolicysName(t *testing.T) {
	bad := ingress(networking.NetworkPolicyIngressRule{From: []networking.NetworkPolicyPeer{{
		PodSelector: &meta.LabelSelector{MatchExpressions: []meta.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}}}})
	if _, err := Ruleset(world(bad)); err == nil || !strings.Contains(err.Error(), "tdcs/p") {
		t.Errorf("got %v", err)
	}
}
