// Drives a whole machine life through go-proxmox, the client of the original provider, in that
// provider's order of calls. Arguments: URL, token id, token secret. Prints one line of JSON.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/luthermonson/go-proxmox"
)

func main() {
	seen, err := life(context.Background(), os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		os.Exit(1)
	}
}

func wait(ctx context.Context, task *proxmox.Task, err error) error {
	if err != nil {
		return err
	}
	if err := task.Wait(ctx, 20*time.Millisecond, 30*time.Second); err != nil {
		return err
	}
	if task.ExitStatus != "OK" {
		return fmt.Errorf("%s: %s", task.Type, task.ExitStatus)
	}
	return nil
}

func life(ctx context.Context, url, token, secret string) (map[string]any, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := proxmox.NewClient(url+"/api2/json",
		proxmox.WithHTTPClient(&http.Client{Transport: transport}),
		proxmox.WithAPIToken(token, secret))
	seen := map[string]any{}
	version, err := client.Version(ctx)
	if err != nil {
		return nil, err
	}
	seen["version"] = version.Release
	node, err := client.Node(ctx, "pve1")
	if err != nil {
		return nil, err
	}
	seen["memory"] = node.Memory.Total
	cluster, err := client.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	id, err := cluster.NextID(ctx)
	if err != nil {
		return nil, err
	}
	resources, err := cluster.Resources(ctx, "vm")
	if err != nil {
		return nil, err
	}
	seen["resources"] = len(resources)
	template, err := node.VirtualMachine(ctx, 9000)
	if err != nil {
		return nil, err
	}
	_, task, err := template.Clone(ctx, &proxmox.VirtualMachineCloneOptions{
		NewID: id, Name: "by-go-proxmox", Full: 1, Target: "pve2",
	})
	if err := wait(ctx, task, err); err != nil {
		return nil, err
	}
	if free, err := cluster.CheckID(ctx, id); err != nil || free {
		return nil, fmt.Errorf("id %d is said to be free: %w", id, err)
	}
	node, err = client.Node(ctx, "pve2")
	if err != nil {
		return nil, err
	}
	vm, err := node.VirtualMachine(ctx, id)
	if err != nil {
		return nil, err
	}
	return seen, run(ctx, node, vm, seen)
}

func run(ctx context.Context, node *proxmox.Node, vm *proxmox.VirtualMachine, seen map[string]any) error {
	task, err := vm.Config(ctx,
		proxmox.VirtualMachineOption{Name: "cores", Value: 4},
		proxmox.VirtualMachineOption{Name: "memory", Value: 4096},
		proxmox.VirtualMachineOption{Name: "tags", Value: "b;a"})
	if err := wait(ctx, task, err); err != nil {
		return err
	}
	task, err = vm.ResizeDisk(ctx, "scsi0", "20G")
	if err := wait(ctx, task, err); err != nil {
		return err
	}
	storage, err := node.StorageISO(ctx)
	if err != nil {
		return err
	}
	seen["storage"] = storage.Name
	name := fmt.Sprintf("user-data-%d.iso", vm.VMID)
	file := filepath.Join(os.TempDir(), name)
	if err := os.WriteFile(file, []byte("SEED"), 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	task, err = storage.Upload("iso", file)
	if err := wait(ctx, task, err); err != nil {
		return err
	}
	task, err = vm.Config(ctx,
		proxmox.VirtualMachineOption{Name: "ide0", Value: "local:iso/" + name + ",media=cdrom"},
		proxmox.VirtualMachineOption{Name: "boot", Value: vm.VirtualMachineConfig.Boot + ";ide0"})
	if err := wait(ctx, task, err); err != nil {
		return err
	}
	task, err = vm.Start(ctx)
	if err := wait(ctx, task, err); err != nil {
		return err
	}
	if err := vm.Ping(ctx); err != nil {
		return err
	}
	seen["status"] = vm.Status
	seen["tags"] = vm.Tags
	seen["name"] = vm.VirtualMachineConfig.Name
	return guest(ctx, storage, vm, name, seen)
}

func guest(ctx context.Context, storage *proxmox.Storage, vm *proxmox.VirtualMachine, name string, seen map[string]any) error {
	if err := vm.WaitForAgent(ctx, 20); err != nil {
		return err
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		pid, err := vm.AgentExec(ctx, []string{"cloud-init", "status"}, "")
		if err != nil {
			return err
		}
		status, err := vm.WaitForAgentExecExit(ctx, pid, 2)
		if err != nil {
			return err
		}
		seen["cloud-init"] = status.OutData
		if status.OutData == "status: done\n" || time.Now().After(deadline) {
			break
		}
	}
	task, err := vm.Stop(ctx)
	if err := wait(ctx, task, err); err != nil {
		return err
	}
	iso, err := storage.ISO(ctx, name)
	if err != nil {
		return err
	}
	task, err = iso.Delete(ctx)
	if err := wait(ctx, task, err); err != nil {
		return err
	}
	task, err = vm.Delete(ctx)
	if err := wait(ctx, task, err); err != nil {
		return err
	}
	if err := vm.Ping(ctx); err != nil {
		seen["gone"] = err.Error()
	}
	return nil
}
