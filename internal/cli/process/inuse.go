package process

import (
	"errors"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/mq"
)

// InUse adds the remedy to the error about a directory that another process has open.
func InUse(dir string, err error) error {
	if errors.Is(err, mq.ErrLocked) {
		return command.Fail("in_use", "%s is in use by a running process: stop the server, or leave the directory out to ask it", dir)
	}
	return err
}
