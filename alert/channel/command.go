package channel

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// Runner runs the programs that the operator has declared for alerts. Run gives a program
// its input on behalf of an app, and returns its exit code and the beginning of what it
// writes. An error means that the program did not run or did not end in time.
type Runner interface {
	Run(ctx context.Context, app, name string, input []byte) (code int, output []byte, err error)
}

// ErrNoCommand is the error of a Runner for a name that the operator has not declared for
// the app.
var ErrNoCommand = errors.New("the operator of the server has declared no such command")

// final reports whether an exit code says that another attempt is useless: EX_USAGE to
// EX_SOFTWARE and EX_PROTOCOL to EX_CONFIG of sysexits.h, as for the commands of jobs.
func final(code int) bool { return code >= 64 && code <= 70 || code >= 76 && code <= 78 }

// Command is a program of the operator that receives the [Payload] on its standard input.
type Command struct {
	Name string // that the operator gave it
	App  string // of the channel; "": it is of the whole installation
}

var commandName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckCommandName returns an error for a name that no command can have.
func CheckCommandName(name string) error {
	if !commandName.MatchString(name) {
		return fmt.Errorf("command %.80q: the name is malformed: use letters, digits, '.', '_' and '-', and begin with a letter or a digit", name)
	}
	return nil
}

type commander struct {
	Command
	runner   Runner
	renderer *notification.Renderer
}

// NewCommand returns a channel that runs a command. A runner that does not know the name
// refuses each message: the operator may declare it later.
func NewCommand(c Command, runner Runner, r *notification.Renderer) (Channel, error) {
	if err := CheckCommandName(c.Name); err != nil {
		return nil, err
	}
	return commander{c, runner, r}, nil
}

// Kind returns KindCommand.
func (c commander) Kind() Kind { return KindCommand }

// Send makes one attempt. A command says with its exit code what became of the message: 0
// taken, 64 to 70 and 76 to 78 refused for ever, any other to try again.
func (c commander) Send(ctx context.Context, now time.Time, m notification.Message) Result {
	if err := m.Check(); err != nil {
		return Result{Verdict: Refused, Reason: err.Error()}
	}
	t := &texts{renderer: c.renderer, message: m}
	input, err := t.payload(now)
	if err != nil {
		return Result{Verdict: Refused, Reason: "make the input: " + err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	code, output, err := c.runner.Run(ctx, c.App, c.Name, input)
	r := Result{Status: code, Reason: hide(string(output), nil), Note: hide(t.note(), nil)}
	switch {
	case errors.Is(err, ErrNoCommand):
		r.Verdict, r.Reason = Refused, hide("command "+c.Name+": "+err.Error(), nil)
	case err != nil:
		r.Verdict, r.Reason = Retry, hide("command "+c.Name+": "+err.Error(), nil)
	case code == 0:
		r.Verdict = Delivered
	case final(code):
		r.Verdict = Refused
	default:
		r.Verdict = Retry
	}
	return r
}
