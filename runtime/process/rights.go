package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
)

// Rights are what the operator of a host gives a program. The zero value is: every app may
// use it, it runs as the user of the host, and with the walls of [Policy] it has no network
// and no files but those of the system.
type Rights struct {
	Apps      []string // apps that may use it; empty: all
	User      string   // name, or UID:GID; "": the user of this process
	Read      []string // absolute paths that it also reads and executes
	Write     []string // absolute paths that it also changes
	Network   bool     // see [sandbox.Box]
	Ports     []uint16 // see [sandbox.Box]; with Network only
	Memory    int64    // bytes; 0: that of the policy
	Processes int64    // processes and threads at once; 0: that of the policy
}

// Serves reports whether an app may use the program.
func (r *Rights) Serves(app string) bool { return len(r.Apps) == 0 || slices.Contains(r.Apps, app) }

// Policy says what a [Keeper] does with each program. The zero value uses no walls.
type Policy struct {
	Mode sandbox.Mode // "": Off
	// Data is the folder with the keys and the data of this process. No right includes it.
	Data string
	// Temp is the prefix of the names of private folders in the folder for temporary files.
	// It must be unique to this host: NewKeeper removes the folders that a killed process
	// has left.
	Temp      string
	Memory    int64   // bytes for each program; 0: no limit
	Processes int64   // for each program; 0: no limit
	Groups    *Groups // control groups; nil: the limit of memory is one of each process
}

// Rules are the rights of one program, checked and resolved. They are made by [Keeper.Rules].
type Rules struct {
	box               *sandbox.Box // nil: without walls
	as                *account     // nil: the user of this process
	memory, processes int64        // 0: no limit
}

// Private reports whether a program has a private folder for temporary files, which the
// Keeper names in TMPDIR.
func (r *Rules) Private() bool { return r != nil && r.box != nil }

// With returns the rules with more files, for one start.
func (r *Rules) With(read, write []string) *Rules {
	if r == nil || r.box == nil {
		return r
	}
	with, box := *r, *r.box
	box.Read, box.Write = slices.Concat(box.Read, read), slices.Concat(box.Write, write)
	with.box = &box
	return &with
}

// Listening returns the rules with the right to listen on Unix sockets.
func (r *Rules) Listening() *Rules {
	with := r.With(nil, nil)
	if with.Private() {
		with.box.Listens = true
	}
	return with
}

// User reports whether the program runs as another user than this process.
func (r *Rules) User() bool { return r != nil && r.as != nil }

// Dir returns the default of the folder in which a program starts: its own. Another user
// may not be able to enter that.
func (r *Rules) Dir(program string) string {
	if r.User() {
		return "/"
	}
	return filepath.Dir(program)
}

// Own gives a file or folder to the user of the program.
func (r *Rules) Own(path string) error {
	if !r.User() {
		return nil
	}
	return os.Chown(path, int(r.as.uid), int(r.as.gid))
}

// account is a user and its primary group. Other groups are dropped.
type account struct{ uid, gid uint32 }

// Rules checks the rights of a program and resolves them. An error says what the operator
// can change.
func (k *Keeper) Rules(r Rights) (*Rules, error) {
	p := k.policy
	rules := &Rules{memory: r.Memory, processes: r.Processes}
	if rules.memory == 0 {
		rules.memory = p.Memory
	}
	if rules.processes == 0 {
		rules.processes = p.Processes
	}
	switch {
	case slices.Contains(r.Apps, ""):
		return nil, errors.New("apps has an empty name: leave apps away to serve all")
	case r.Memory < 0 || r.Processes < 0:
		return nil, errors.New("memory or processes is negative")
	case len(r.Ports) > 0 && !r.Network:
		return nil, errors.New("ports is for a program with network: true")
	case slices.Contains(r.Ports, 0):
		return nil, errors.New("port 0 is none")
	}
	if r.User != "" {
		as, err := resolve(r.User)
		if err == nil {
			err = mayChangeUser()
		}
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", r.User, err)
		}
		rules.as = as
		if p.Groups == nil && !mayLimitOthers() {
			if r.Memory > 0 {
				return nil, errors.New("memory: limiting a program of another user takes a control group, or CAP_SYS_RESOURCE: delegate a group to the host, or leave memory away")
			}
			rules.memory = 0
		}
	}
	if p.Mode == "" || p.Mode == sandbox.Off {
		return rules, nil
	}
	if len(r.Ports) > 0 && !k.walls.Ports() {
		return nil, fmt.Errorf("ports needs Landlock of Linux 6.7, and this system has version %d of its interface: leave ports away to allow all", k.walls.Landlock)
	}
	for _, path := range slices.Concat(r.Read, r.Write) {
		if err := p.check(path); err != nil {
			return nil, err
		}
	}
	rules.box = &sandbox.Box{Read: r.Read, Write: r.Write, Network: r.Network, Ports: r.Ports, Clone3: p.Groups != nil}
	return rules, nil
}

// check refuses a path that is missing, or that would show the data of the host.
func (p *Policy) check(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("path %q is not absolute", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if p.Data == "" {
		return nil
	}
	data, err := filepath.EvalSymlinks(p.Data)
	if err != nil {
		return err
	}
	if below(real, data) || below(data, real) {
		return fmt.Errorf("%s would show the data directory of the host, %s, with its keys: name a folder beside it", path, p.Data)
	}
	return nil
}

// below reports whether path is dir or in it.
func below(path, dir string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator))
}

// resolve reads a user: its name or its number, or UID:GID.
func resolve(text string) (*account, error) {
	uid, gid, both := strings.Cut(text, ":")
	if !both {
		u, err := user.Lookup(text)
		if err != nil {
			if u, err = user.LookupId(text); err != nil {
				return nil, errors.New("there is no such user: write its name, or UID:GID")
			}
		}
		uid, gid = u.Uid, u.Gid
	}
	u, err := strconv.ParseUint(uid, 10, 32)
	g, err2 := strconv.ParseUint(gid, 10, 32)
	if err != nil || err2 != nil {
		return nil, errors.New("it is malformed: write a name, or UID:GID with two numbers")
	}
	return &account{uint32(u), uint32(g)}, nil
}

// Hold opens the program of a command, and lets the command start the open file. So it can
// start a program in a folder that its user cannot reach. The caller closes the file after
// the start.
func Hold(cmd *exec.Cmd) (*os.File, error) {
	f, err := os.Open(cmd.Path)
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	cmd.Path = fmt.Sprintf("/proc/self/fd/%d", 2+len(cmd.ExtraFiles))
	return f, nil
}
