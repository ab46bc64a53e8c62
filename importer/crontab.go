package importer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/importer/fires"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// nicknames are the lines for which the names of a crontab stand.
var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// crontab is the state of the file at a line.
type crontab struct {
	*conversion
	variables []string // of the environment, as NAME=value, in the order of the file
	in        *time.Location
	mailto    string
	commands  bytes.Buffer // the file for --commands of a host
}

// Crontab converts a crontab. Each command becomes a script, which a host runs when its
// operator allows it.
func Crontab(text []byte, o Options) (*Result, error) {
	c := &crontab{conversion: begin("crontab", o)}
	for n, line := range strings.Split(strings.ToValidUTF8(string(text), "\uFFFD"), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case c.assignment(line):
		default:
			c.entry(n+1, line)
		}
	}
	if len(c.jobs) == 0 {
		return nil, errors.New("the file has no line with a command")
	}
	c.out.Files = append(c.out.Files, File{Name: "commands.yaml", Text: append([]byte("commands:\n"), c.commands.Bytes()...)})
	c.line("crontab", "commands", Todo, "give the folder of --scripts to a host: wheelwork host --commands FOLDER/commands.yaml")
	return c.end(), nil
}

// assignment reads NAME=value.
func (c *crontab) assignment(line string) bool {
	name, value, ok := strings.Cut(line, "=")
	name = strings.Trim(strings.TrimSpace(name), `"'`)
	if !ok || name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") != "" || '0' <= name[0] && name[0] <= '9' {
		return false
	}
	value = strings.TrimSpace(value)
	if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	switch name {
	case "MAILTO":
		c.mailto = value
	case "CRON_TZ":
		in, err := cron.LoadZone(value)
		if err != nil {
			c.line("crontab", name, Todo, "%v", err)
			return true
		}
		c.in = in
	default:
		c.variables = append(c.variables, name+"="+value)
	}
	return true
}

// split returns the first n fields of a line and the rest.
func split(line string, n int) (fields []string, rest string) {
	for range n {
		line = strings.TrimLeft(line, " \t")
		end := strings.IndexAny(line, " \t")
		if end < 0 {
			return append(fields, line), ""
		}
		fields, line = append(fields, line[:end]), line[end:]
	}
	return fields, strings.TrimSpace(line)
}

func (c *crontab) entry(number int, line string) {
	where := fmt.Sprintf("line %d", number)
	times := 5
	line = strings.TrimPrefix(line, "-") // it only keeps the syslog quiet
	if line[:min(1, len(line))] == "@" {
		times = 1
	}
	n := times
	if c.UserColumn {
		n++
	}
	fields, command := split(line, n)
	if command == "" {
		c.line(where, "command", Todo, "%q has no command: it is in no document", line)
		return
	}
	program, _ := split(command, 1)
	j := c.job(where, program[0][strings.LastIndexByte(program[0], '/')+1:], "command")
	j.spec.Description = ""
	j.describe(command)
	j.label(labelID, where)
	c.times(j, strings.Join(fields[:times], " "))
	c.command(j, command)
	if c.UserColumn {
		j.owner("user", fields[times])
		fmt.Fprintf(&c.commands, "  user: %q\n", fields[times])
	}
	j.timeout("timeout", 0)
	j.misfire("missed times", "skip", 0, "skip; a time up to 1m late still runs")
	j.tell("MAILTO", strings.Split(c.mailto, ","), nil)
	if c.mailto != "" {
		j.line("MAILTO", Changed, "cron mails the output of each run; here it is in the log of the run, and mails tell of failures")
	}
	j.state("line", true)
}

// times sets the schedule.
func (c *crontab) times(j *job, line string) {
	if line == "@reboot" {
		j.line("schedule", Lost, "@reboot: it has no schedule; start the program with the system instead")
		return
	}
	if full := nicknames[strings.ToLower(line)]; full != "" {
		line = full
	}
	in := c.in
	if in == nil {
		in = c.zone()
	}
	j.unix("schedule", line, in, fires.Vixie)
}

// unix sets a schedule by a line of five fields.
func (j *job) unix(field, line string, in *time.Location, read func(string, *time.Location) (*fires.Cron, error)) {
	rule, err := read(line, in)
	if err != nil {
		j.line(field, Todo, "%q is no line of cron (%v): the job has no schedule", line, err)
		return
	}
	if j.cron(field, line, in); j.spec.Schedule != nil {
		j.rule = rule
	}
}

// command makes a script of a command.
func (c *crontab) command(j *job, text string) {
	command, input := unescapePercent(text)
	shell := "/bin/sh"
	var b strings.Builder
	var names []string
	for i, v := range c.variables {
		name, value, _ := strings.Cut(v, "=")
		if slices.ContainsFunc(c.variables[i+1:], func(later string) bool { return strings.HasPrefix(later, name+"=") }) {
			continue
		}
		if name == "SHELL" {
			shell = value
			continue
		}
		names = append(names, name)
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	file := j.spec.Name + ".sh"
	c.out.Files = append(c.out.Files, File{Name: file, Text: []byte("#!" + shell + "\n" + b.String() + command + "\n"), Executable: true})
	fmt.Fprintf(&c.commands, "- name: %s\n  path: %s\n", j.spec.Name, file)
	j.spec.Handler = &apiv1.Handler{Name: "builtin:exec", Command: j.spec.Name}
	j.line("command", Changed, "it is the script %s, which a host runs as the command %s", file, j.spec.Name)
	if len(names) > 0 {
		j.line("environment", Kept, "%s, in the script", strings.Join(names, ", "))
	}
	j.input("text after %", input)
}

// unescapePercent divides a command at its first % that is not escaped. Further ones are
// line ends of the input.
func unescapePercent(text string) (command, input string) {
	var b strings.Builder
	head := ""
	behind := false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '%':
			b.WriteByte('%')
			i++
		case text[i] == '%' && !behind:
			head, behind = b.String(), true
			b.Reset()
		case text[i] == '%':
			b.WriteByte('\n')
		default:
			b.WriteByte(text[i])
		}
	}
	if !behind {
		return b.String(), ""
	}
	return head, b.String() + "\n"
}
