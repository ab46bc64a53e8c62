package serve

import (
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// addShares adds the flags that bound what one app or caller takes of a server. The returned
// function checks them.
func addShares(cmd *cobra.Command, apps, streamsPerApp, streamsPerCaller *int) func(*cobra.Command) error {
	flags := cmd.Flags()
	flags.IntVar(apps, "max-apps", 1000, "`number` of apps; in a cluster, of each partition")
	flags.IntVar(streamsPerApp, "max-streams-per-app", 512, "`number` of streams that are open for an app, as followers of logs")
	flags.IntVar(streamsPerCaller, "max-streams-per-caller", 4096, "`number` of streams that a user or a program has open, with all its tokens")
	return func(cmd *cobra.Command) error {
		for _, flag := range []string{"max-apps", "max-streams-per-app", "max-streams-per-caller"} {
			if n, _ := flags.GetInt(flag); n < 1 {
				return command.Usage(cmd, "--%s %d: want a positive number", flag, n)
			}
		}
		return nil
	}
}

// addLimits adds the flags that bound the resources of callers. The returned function
// reads them.
func addLimits(cmd *cobra.Command, limits *transport.Limits) func(*cobra.Command) error {
	var header, rate int64
	sizes := []struct {
		flag, text, usage string
		to                *int64
	}{
		{"max-body", "4MiB", "largest body of an HTTP request, as `SIZE`; uploads of modules have a limit of their own", &limits.Body},
		{"max-inflated", "4MiB", "largest gRPC message of a user or a program after decompression, as `SIZE`", &limits.Inflated},
		{"max-header", "64KiB", "largest headers of a request, as `SIZE`", &header},
		{"min-body-rate", "4KiB", "bytes of a body that must arrive in a second, as `SIZE`, after the first 10 seconds", &rate},
	}
	flags := cmd.Flags()
	for i := range sizes {
		s := &sizes[i]
		flags.StringVar(&s.text, s.flag, s.text, s.usage)
	}
	flags.IntVar(&limits.Streams, "max-streams", 256, "`number` of gRPC calls that an address may have open without a token")
	flags.IntVar(&limits.Connections, "max-connections", 10_000, "`number` of connections, and never more than half the file descriptors of the process; the oldest without a token are closed")
	flags.IntVar(&limits.Unknown, "max-connections-per-address", 128, "`number` of connections that an address may have without a token; the oldest are closed")
	flags.DurationVar(&limits.Idle, "idle-timeout", 2*time.Minute, "`time` after which a connection without a request is closed; calls and streams that are open keep it")
	proxies := flags.StringSlice("trusted-proxy", nil, "`CIDR` of proxies whose X-Forwarded-For names the client; may be repeated")
	return func(cmd *cobra.Command) error {
		for _, s := range sizes {
			n, err := command.Size(s.text)
			if err != nil || n < 1 {
				return command.Usage(cmd, "--%s %q: want a positive size, for example %s", s.flag, s.text, cmd.Flag(s.flag).DefValue)
			}
			*s.to = n
		}
		if header > 16<<20 {
			return command.Usage(cmd, "--max-header %d bytes: want at most 16MiB", header)
		}
		limits.Header, limits.BodyRate = int(header), rate
		for flag, n := range map[string]int{"max-streams": limits.Streams, "max-connections": limits.Connections, "max-connections-per-address": limits.Unknown} {
			if n < 1 {
				return command.Usage(cmd, "--%s %d: want a positive number", flag, n)
			}
		}
		if limits.Idle <= 0 {
			return command.Usage(cmd, "--idle-timeout %v: want a positive time, for example 2m", limits.Idle)
		}
		for _, text := range *proxies {
			p, err := netip.ParsePrefix(text)
			if a, aerr := netip.ParseAddr(text); aerr == nil {
				p, err = netip.PrefixFrom(a, a.BitLen()), nil
			}
			if err != nil {
				return command.Usage(cmd, "--trusted-proxy %q: want an address or a range of them, for example 10.1.0.0/16", text)
			}
			limits.TrustedProxies = append(limits.TrustedProxies, p.Masked())
		}
		return nil
	}
}
