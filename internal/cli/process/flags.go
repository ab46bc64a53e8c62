package process

import (
	"log/slog"
	"math"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/node"
)

// Log is the log of a process. Its level can change while the process runs.
type Log struct {
	*slog.Logger
	Level *slog.LevelVar
}

// AddLog adds the flags for the log of a process. The returned function creates the
// log after the flags are parsed.
func AddLog(cmd *cobra.Command, level string) func(*cobra.Command) (Log, error) {
	var format string
	cmd.Flags().StringVar(&level, "log-level", level, "least severe level to log: debug, info, warn, error")
	cmd.Flags().StringVar(&format, "log-format", "text", "form of the log on standard error: text, json")
	command.Complete(cmd, "log-level", "debug", "info", "warn", "error")
	command.Complete(cmd, "log-format", "text", "json")
	return func(cmd *cobra.Command) (Log, error) {
		least := &slog.LevelVar{}
		if err := least.UnmarshalText([]byte(strings.ToUpper(level))); err != nil {
			return Log{}, command.Usage(cmd, "--log-level %q: want debug, info, warn or error", level)
		}
		options := &slog.HandlerOptions{Level: least}
		switch format {
		case "text":
			return Log{slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), options)), least}, nil
		case "json":
			return Log{slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), options)), least}, nil
		}
		return Log{}, command.Usage(cmd, "--log-format %q: want text or json", format)
	}
}

// AddSplitRate adds the flag for the rate at which an app is split. The returned function
// reads it.
func AddSplitRate(cmd *cobra.Command) func(*cobra.Command) (float64, error) {
	rate := cmd.Flags().Float64("split-rate", 0, "schedules a `second` from which an app may be spread over several partitions (default 500; negative: only by hand)")
	return func(cmd *cobra.Command) (float64, error) {
		if math.IsNaN(*rate) {
			return 0, command.Usage(cmd, "--split-rate %v: want a number, a negative one for never", *rate)
		}
		return *rate, nil
	}
}

// AddMaxHosts adds the flag for the number of hosts up to which each host serves every
// partition. The returned function reads it.
func AddMaxHosts(cmd *cobra.Command) func(*cobra.Command) (int, error) {
	n := cmd.Flags().Int("max-hosts-per-sub-app", 100, "`number` of hosts up to which each works for every partition of a cluster, and an app that they serve by name stays in one; more hosts are assigned to partitions (0: never)")
	return func(cmd *cobra.Command) (int, error) {
		switch {
		case *n < 0:
			return 0, command.Usage(cmd, "--max-hosts-per-sub-app %d: want a positive number, or 0 for never", *n)
		case *n == 0:
			return -1, nil
		}
		return *n, nil
	}
}

// MemberFlags lists the flags with addresses of an embedded etcd member.
var MemberFlags = []string{"cluster-listen", "cluster-peer", "cluster-advertise", "cluster-peer-advertise"}

// AddAdvertise adds the flags for the addresses at which other members reach a member
// that listens elsewhere.
func AddAdvertise(cmd *cobra.Command, conf *node.ClusterConfig) {
	flags := cmd.Flags()
	flags.StringVar(&conf.Advertise, "cluster-advertise", "", "HOST:PORT at which servers reach the member, if that is not --cluster-listen: behind a proxy or NAT")
	flags.StringVar(&conf.PeerAdvertise, "cluster-peer-advertise", "", "HOST:PORT at which the other members reach it, if that is not --cluster-peer")
}

// ShellWord quotes a path for a shell where necessary.
func ShellWord(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
