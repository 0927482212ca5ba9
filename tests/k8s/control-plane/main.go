// The parts of a Kubernetes control plane, and kubectl, in one program: the first argument says which part it is.
// Linked together they share most of their code, so that building and caching them is cheap.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func command(make func() *cobra.Command) func([]string) {
	return func(args []string) {
		os.Args = args
		os.Exit(cli.Run(make()))
	}
}

var parts = map[string]func([]string){
	"etcd":                    etcdmain.Main,
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(manager.NewControllerManagerCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 command(func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() }),
}

func main() {
	if len(os.Args) > 1 {
		if run, known := parts[os.Args[1]]; known {
			run(os.Args[1:])
			return
		}
	}
	names := []string{}
	for name := range parts {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintln(os.Stderr, "usage: control-plane", strings.Join(names, "|"), "...")
	os.Exit(64)
}
