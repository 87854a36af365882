// The CNI plugin of flannel, whose own module (github.com/flannel-io/cni-plugin) no module proxy here lists. By its description: it reads
// what flanneld wrote of the node's subnet, makes a configuration for another plugin (the bridge, with addresses by host-local) out of it
// and of `delegate`, and lets that plugin do the work. What it told the other it keeps until the container goes.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	subnetFile = "/run/flannel/subnet.env"
	dataDir    = "/var/lib/cni/flannel"
)

type object = map[string]any

func main() {
	if err := run(); err != nil {
		// CNI: an error is an object on the standard output. 100 and above are the plugin's own.
		json.NewEncoder(os.Stdout).Encode(object{"cniVersion": "1.0.0", "code": 100, "msg": err.Error()})
		os.Exit(1)
	}
}

func run() error {
	command := os.Getenv("CNI_COMMAND")
	if command == "VERSION" {
		versions := []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
		return json.NewEncoder(os.Stdout).Encode(object{"cniVersion": "1.0.0", "supportedVersions": versions})
	}
	var config object
	if err := json.NewDecoder(os.Stdin).Decode(&config); err != nil {
		return fmt.Errorf("the configuration: %w", err)
	}
	kept := filepath.Join(dataDir, filepath.Base(os.Getenv("CNI_CONTAINERID")))
	switch command {
	case "ADD":
		delegate, err := delegated(config)
		if err != nil {
			return err
		}
		text, err := json.Marshal(delegate)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dataDir, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(kept, text, 0o600); err != nil {
			return err
		}
		return call(delegate, text)
	case "DEL":
		text, err := os.ReadFile(kept)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		var delegate object
		if err := json.Unmarshal(text, &delegate); err != nil {
			return err
		}
		if err := call(delegate, text); err != nil {
			return err
		}
		return os.Remove(kept)
	case "CHECK", "STATUS", "GC":
		_, err := os.Stat(subnetFile)
		return err
	}
	return fmt.Errorf("the command %q", command)
}

// delegated is the configuration for the other plugin.
func delegated(config object) (object, error) {
	text, err := os.ReadFile(subnetFile)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if name, value, ok := strings.Cut(line, "="); ok {
			env[name] = value
		}
	}
	mtu, err := strconv.Atoi(env["FLANNEL_MTU"])
	if err != nil {
		return nil, fmt.Errorf("%s: FLANNEL_MTU: %w", subnetFile, err)
	}
	// flanneld writes its own address in it, 10.2.0.1/24, and host-local wants the network's.
	_, subnet, err := net.ParseCIDR(env["FLANNEL_SUBNET"])
	if err != nil {
		return nil, fmt.Errorf("%s: FLANNEL_SUBNET: %w", subnetFile, err)
	}
	delegate, _ := config["delegate"].(object)
	if delegate == nil {
		delegate = object{}
	}
	unless := func(key string, value any) {
		if _, there := delegate[key]; !there {
			delegate[key] = value
		}
	}
	delegate["name"], delegate["cniVersion"] = config["name"], config["cniVersion"]
	unless("type", "bridge")
	unless("ipMasq", env["FLANNEL_IPMASQ"] != "true")
	unless("mtu", mtu)
	unless("isGateway", true)
	delegate["ipam"] = object{
		"type":   "host-local",
		"ranges": [][]object{{{"subnet": subnet.String()}}},
		"routes": []object{{"dst": env["FLANNEL_NETWORK"]}},
	}
	return delegate, nil
}

// call lets the other plugin do the work; what it says is what we say.
func call(delegate object, text []byte) error {
	name, _ := delegate["type"].(string)
	for _, folder := range filepath.SplitList(os.Getenv("CNI_PATH")) {
		path := filepath.Join(folder, filepath.Base(name))
		if _, err := os.Stat(path); err != nil {
			continue
		}
		var said bytes.Buffer
		plugin := exec.Command(path)
		plugin.Stdin, plugin.Stdout, plugin.Stderr = bytes.NewReader(text), &said, os.Stderr
		err := plugin.Run()
		if _, failed := io.Copy(os.Stdout, &said); failed != nil {
			return failed
		}
		if err != nil {
			// It has told why.
			os.Exit(1)
		}
		return nil
	}
	return fmt.Errorf("there is no plugin %q in CNI_PATH", name)
}
