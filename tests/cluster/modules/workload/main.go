// Command workload is what runs in the containers of the tests on a real kubelet.
//
// Without arguments it is the sandbox: it waits for a signal and collects the processes that end in
// it. With -run it is a job: it prints one line of JSON about the devices that it was given, and
// ends by itself after -for, or at a signal. It has no dependencies and links statically, so an
// image of this one file is enough and no registry is needed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Prefixes of the variables by which GPUs come into a container.
var prefixes = []string{"NVIDIA_", "CUDA_", "COTERIE_"}

// What is told of a container, as its first line of output.
type report struct {
	Environment map[string]string `json:"environment"`
	// Names below the folder by which NVIDIA's runtime takes devices as mounts.
	Mounted []string `json:"mounted"`
	// Names in /dev, without those that every container has.
	Devices []string `json:"devices"`
}

const mounts = "/var/run/nvidia-container-devices"

func main() {
	runs := flag.Bool("run", false, "tell what was given, then run")
	lasts := flag.Duration("for", 0, "how long to run; 0 is until a signal")
	code := flag.Int("code", 0, "exit code at the end")
	flag.Parse()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	var ends <-chan time.Time
	if *runs {
		line, err := json.Marshal(look())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
		fmt.Println(string(line))
		if *lasts > 0 {
			ends = time.After(*lasts)
		}
	}
	for {
		select {
		case <-ends:
			os.Exit(*code)
		case got := <-signals:
			if got != syscall.SIGCHLD {
				os.Exit(*code)
			}
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

func look() report {
	found := report{Environment: map[string]string{}, Mounted: []string{}, Devices: []string{}}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				found.Environment[name] = value
			}
		}
	}
	found.Mounted = append(found.Mounted, list(mounts)...)
	for _, path := range list("/dev") {
		if strings.HasPrefix(path, "nvidia") {
			found.Devices = append(found.Devices, path)
		}
	}
	return found
}

// The names in a folder, sorted; none where it is not there.
func list(folder string) []string {
	paths, _ := filepath.Glob(filepath.Join(folder, "*"))
	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}
