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
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Prefixes of the variables by which GPUs come into a container.
var prefixes = []string{"NVIDIA_", "CUDA_", "COTERIE_"}

// What a container reports, as its first line of output.
type report struct {
	Environment map[string]string `json:"environment"`
	// Paths below the folder by which NVIDIA's runtime takes devices as mounts.
	Mounted []string `json:"mounted"`
	// What is in /dev, without what every container has.
	Devices []device `json:"devices"`
}

// A device node as the container sees it.
type device struct {
	// Below /dev.
	Path string `json:"path"`
	// Major and minor number: two nodes may have the name of one device.
	Number string `json:"number"`
	// Whether it may be read and written here, be there a driver or none.
	Usable bool `json:"usable"`
}

const mounts = "/var/run/nvidia-container-devices"

// What every container has in /dev (OCI runtime-spec, config-linux.md, "Default Devices"), and the
// console that the kernel may bring.
var everywhere = map[string]bool{
	"null": true, "zero": true, "full": true, "random": true, "urandom": true, "tty": true,
	"console": true, "ptmx": true, "pts/ptmx": true,
}

func main() {
	runs := flag.Bool("run", false, "report what was given, then run")
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
	found := report{Environment: map[string]string{}, Mounted: []string{}, Devices: []device{}}
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
		if one, is := node(path); is && !everywhere[path] {
			found.Devices = append(found.Devices, one)
		}
	}
	return found
}

// The paths below a folder that are no folders, sorted; none where it is not there.
func list(folder string) []string {
	paths := []string{}
	filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			below, _ := filepath.Rel(folder, path)
			paths = append(paths, below)
		}
		return nil
	})
	return paths
}

// What that path of /dev is, and whether it is a device node at all.
func node(path string) (device, bool) {
	full := filepath.Join("/dev", path)
	info, err := os.Lstat(full)
	if err != nil || info.Mode()&fs.ModeDevice == 0 {
		return device{}, false
	}
	number := info.Sys().(*syscall.Stat_t).Rdev
	// The layout of dev_t that user space has (glibc, sysdeps/unix/sysv/linux/sys/sysmacros.h).
	major := number>>8&0xfff | number>>32&^0xfff
	minor := number&0xff | number>>12&^0xff
	file, err := os.OpenFile(full, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err == nil {
		file.Close()
	}
	// Without a driver the kernel says ENXIO to whoever may.
	return device{path, fmt.Sprintf("%d:%d", major, minor), !os.IsPermission(err)}, true
}
