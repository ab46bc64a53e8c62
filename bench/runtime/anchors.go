package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
)

// anchors measures a warm call in other systems: Extism, a process for each job, and
// go-plugin.
func (b *bench) anchors(ctx context.Context) error {
	b.note("measure Extism, processes and go-plugin")
	ours := rate(b.warm)
	if err := b.extism(ctx, ours); err != nil {
		return fmt.Errorf("extism: %w", err)
	}
	if err := b.process(ctx, ours); err != nil {
		return fmt.Errorf("a process for each job: %w", err)
	}
	if err := b.goPlugin(ctx, ours); err != nil {
		return fmt.Errorf("go-plugin: %w", err)
	}
	return nil
}

func rate(d time.Duration) float64 { return float64(time.Second) / float64(d) }

// extism calls a guest with the same work, in one instance of the Extism SDK, without a
// timeout and without a reset.
func (b *bench) extism(ctx context.Context, ours float64) error {
	p, err := extism.NewPlugin(ctx, extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: extismGuest}}}, extism.PluginConfig{}, nil)
	if err != nil {
		return err
	}
	defer p.Close(ctx) //nolint:errcheck // frees memory
	took, err := b.best(ctx, func() error {
		code, out, err := p.CallWithContext(ctx, "echo", input)
		if err != nil || code != 0 {
			return errors.Join(err, fmt.Errorf("exit code %d", code))
		}
		return checkAnswer(out)
	})
	if err != nil {
		return err
	}
	b.report.AddRatio("warm/extism", ours, "calls/s", "extism", rate(took[0]), report.AtLeast(10))
	return nil
}

func checkAnswer(out []byte) error {
	if len(out) != 8 || binary.LittleEndian.Uint64(out) != answer {
		return fmt.Errorf("the answer is %x", out)
	}
	return nil
}

// process starts cat, a minimal program, for each job.
func (b *bench) process(ctx context.Context, ours float64) error {
	const name, goal = "warm/process", 100
	cat, err := exec.LookPath("cat")
	if err != nil {
		b.report.Skip(name, "calls/s", "there is no program cat", report.AtLeast(goal))
		return nil
	}
	took, err := b.best(ctx, func() error {
		cmd := exec.CommandContext(ctx, cat)
		cmd.Stdin = bytes.NewReader(input)
		out, err := cmd.Output()
		if err == nil && !bytes.Equal(out, input) {
			err = fmt.Errorf("the answer is %x", out)
		}
		return err
	})
	if err != nil {
		return err
	}
	b.report.AddRatio(name, ours, "calls/s", "process", rate(took[0]), report.AtLeast(goal))
	return nil
}

// pluginEnv is the environment variable that makes this program the plugin.
const pluginEnv = "WHEELWORK_BENCH_PLUGIN"

var handshake = plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: pluginEnv, MagicCookieValue: "1"}

func servePlugin() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         plugin.PluginSet{"echo": &echoPlugin{}},
		GRPCServer:      plugin.DefaultGRPCServer,
		Logger:          hclog.NewNullLogger(),
	})
}

// echoPlugin is both sides of the plugin.
type echoPlugin struct{ plugin.NetRPCUnsupportedPlugin }

func (*echoPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	s.RegisterService(&echoService, echoServer{})
	return nil
}

func (*echoPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

type echoServer struct{}

func (echoServer) echo(in *wrapperspb.BytesValue) *wrapperspb.BytesValue {
	out := make([]byte, 8)
	binary.LittleEndian.PutUint64(out, uint64(len(in.GetValue()))<<32|uint64(in.GetValue()[0]))
	return wrapperspb.Bytes(out)
}

// echoService describes two methods of bytes, so it is written by hand.
var echoService = grpc.ServiceDesc{
	ServiceName: "bench.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(srv any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.BytesValue)
		if err := decode(in); err != nil {
			return nil, err
		}
		return srv.(echoServer).echo(in), nil
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		for {
			in := new(wrapperspb.BytesValue)
			if stream.RecvMsg(in) != nil {
				return nil // the client is gone
			}
			if err := stream.SendMsg(srv.(echoServer).echo(in)); err != nil {
				return err
			}
		}
	}}},
}

// goPlugin calls a plugin with the same work: one call after another, and on a stream
// with several calls in flight.
func (b *bench) goPlugin(ctx context.Context, ours float64) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  handshake,
		Plugins:          plugin.PluginSet{"echo": &echoPlugin{}},
		Cmd:              exec.Command(self),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
	})
	defer client.Kill()
	protocol, err := client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense("echo")
	if err != nil {
		return err
	}
	conn := raw.(*grpc.ClientConn)
	streamed, err := streamedCalls(ctx, conn)
	if err != nil {
		return err
	}
	took, err := b.best(ctx, func() error {
		out := new(wrapperspb.BytesValue)
		if err := conn.Invoke(ctx, "/bench.Echo/Call", wrapperspb.Bytes(input), out); err != nil {
			return err
		}
		return checkAnswer(out.GetValue())
	}, streamed)
	if err != nil {
		return err
	}
	unary := rate(took[0])
	b.report.AddRatio("warm/goplugin", ours, "calls/s", "go-plugin unary", unary, report.AtLeast(100))
	b.report.AddRatio("plugin/stream", window*rate(took[1]), "calls/s", "go-plugin unary", unary, report.AtLeast(5))
	b.report.Note(fmt.Sprintf("%d calls under way", window))
	return nil
}

// window is the number of streamed calls in flight.
const window = 128

// streamedCalls returns a job that makes window calls on one stream.
func streamedCalls(ctx context.Context, conn *grpc.ClientConn) (job, error) {
	stream, err := conn.NewStream(ctx, &echoService.Streams[0], "/bench.Echo/Stream")
	if err != nil {
		return nil, err
	}
	in := wrapperspb.Bytes(input)
	return func() error {
		for range window {
			if err := stream.SendMsg(in); err != nil {
				return err
			}
		}
		for range window {
			out := new(wrapperspb.BytesValue)
			if err := stream.RecvMsg(out); err != nil {
				return err
			}
			if err := checkAnswer(out.GetValue()); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
