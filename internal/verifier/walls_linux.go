package verifier

import (
	"os/exec"
	"syscall"
)

// separate starts the child in namespaces of its own: it sees no process, no network and no
// shared memory of others, and changes no mount. Its user has no number there, so it has no
// capability and can become no other user; its files are those that the server's user may
// read. No number is written, which a server that hides its memory could not do.
func separate(cmd *exec.Cmd) {
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
}
