package app

import (
	"fmt"
	"io"
	"os"

	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

// readBounded reads a file of at most so many bytes, or in for "-".
func readBounded(in io.Reader, file string, most int64) ([]byte, error) {
	r := in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only read
		r = f
	}
	source, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(source)) > most {
		err = fmt.Errorf("it is larger than %s", output.Bytes(most))
	}
	return source, err
}
