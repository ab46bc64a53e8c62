package console

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// earlyErrors makes a stream that fails before its first message fail where the gateway
// waits for its headers. There the gateway answers as for any other refused request; later
// it writes the error as a line of the stream.
type earlyErrors struct{ grpc.ClientConnInterface }

func (c earlyErrors) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &earlyError{ClientStream: s}, nil
}

type earlyError struct {
	grpc.ClientStream
	ended bool // without a message and without an error
}

// Header returns the error of a stream that has no headers because it has ended.
func (s *earlyError) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if md != nil || err != nil {
		return md, err
	}
	err = s.ClientStream.RecvMsg(nil) // there is no message to decode
	if errors.Is(err, io.EOF) {
		s.ended, err = true, nil
	}
	return nil, err
}

func (s *earlyError) RecvMsg(m any) error {
	if s.ended {
		return io.EOF
	}
	return s.ClientStream.RecvMsg(m)
}
