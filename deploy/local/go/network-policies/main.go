// network-policies makes a node of the local cluster enforce NetworkPolicies: it watches them, pods and namespaces, and
// hands the rules that follow to nft.
//
// Environment: NODE_NAME, API (https://host:port), TOKEN_FILE, CA_FILE.
package main

import (
	"context"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"tdcs.io/local/network-policies/rules"
)

// Changes come in groups: a Deployment's pods, a chart's policies.
const settle = 100 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config := &rest.Config{
		Host:            os.Getenv("API"),
		BearerTokenFile: os.Getenv("TOKEN_FILE"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: os.Getenv("CA_FILE")},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	if err := enforce(ctx, client, os.Getenv("NODE_NAME")); err != nil {
		log.Fatal(err)
	}
}

// enforce applies the rules whenever they change, until the context ends.
func enforce(ctx context.Context, client kubernetes.Interface, node string) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces := factory.Core().V1().Pods(), factory.Core().V1().Namespaces()
	policies := factory.Networking().V1().NetworkPolicies()
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default: // it is awake
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() }, UpdateFunc: func(any, any) { wake() }, DeleteFunc: func(any) { wake() },
	}
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), namespaces.Informer(), policies.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil // the rules stay: a node without this process must not be open
		case <-changed:
		}
		world := rules.World{Node: node, Namespaces: map[string]labels.Set{}}
		world.Pods, _ = pods.Lister().List(labels.Everything())
		world.Policies, _ = policies.Lister().List(labels.Everything())
		all, _ := namespaces.Lister().List(labels.Everything())
		for _, namespace := range all {
			world.Namespaces[namespace.Name] = namespace.Labels
		}
		wanted, err := rules.Ruleset(world)
		if err == nil && wanted != last {
			err = apply(ctx, wanted)
		}
		if err != nil {
			log.Printf("the rules are not in force, the former ones are: %v", err)
			time.AfterFunc(time.Second, wake)
			continue
		}
		if wanted != last {
			last = wanted
			log.Printf("%d policies, %d lines of rules", len(world.Policies), strings.Count(wanted, "\n"))
		}
		time.Sleep(settle)
	}
}

// apply replaces the table in one transaction.
func apply(ctx context.Context, ruleset string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(ruleset)
	output, err := command.CombinedOutput()
	if err != nil {
		log.Printf("nft: %s", output)
	}
	return err
}
