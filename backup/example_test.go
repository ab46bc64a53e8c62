package backup_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/wheelworkhq/wheelwork/backup"
)

// write returns a backup with one file.
func write() []byte {
	var stream bytes.Buffer
	w, err := backup.NewWriter(&stream, backup.Info{Version: "1.0.0", Server: "srv-1"})
	if err != nil {
		log.Fatal(err)
	}
	file, err := w.Create("keys")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.WriteString(file, "the keys"); err != nil {
		log.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		log.Fatal(err)
	}
	return stream.Bytes()
}

// read reads a backup to its end.
func read(stream io.Reader) error {
	r, err := backup.NewReader(stream)
	if err != nil {
		return err
	}
	for {
		name, err := r.Next()
		if errors.Is(err, io.EOF) {
			fmt.Println("whole:", r.Summary().Files, "file of server", r.Info().Server)
			return nil
		}
		if err != nil {
			return err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %q\n", name, text)
	}
}

// A backup is written and read in one pass, so that it can go through a pipe.
func Example() {
	if err := read(bytes.NewReader(write())); err != nil {
		log.Fatal(err)
	}
	// Output:
	// keys: "the keys"
	// whole: 1 file of server srv-1
}

// A stream that was cut short, or changed, does not read as a whole backup.
func ExampleReader() {
	whole := write()
	cut := whole[:len(whole)-1]
	fmt.Println("cut:", errors.Is(read(bytes.NewReader(cut)), backup.ErrCut))

	changed := bytes.Replace(whole, []byte("the keys"), []byte("The keys"), 1)
	fmt.Println("damaged:", errors.Is(read(bytes.NewReader(changed)), backup.ErrDamaged))
	// Output:
	// keys: "the keys"
	// cut: true
	// damaged: true
}

// Records of a log go into a file of a backup one after another.
func ExampleReadRecords() {
	var file []byte
	file = backup.AppendRecord(file, backup.Record{Queue: 7, Type: 1, Body: []byte("created")})
	file = backup.AppendRecord(file, backup.Record{Queue: 7, Type: 2, Body: []byte("paid")})

	err := backup.ReadRecords(bytes.NewReader(file), func(r backup.Record) error {
		fmt.Println(r.Queue, r.Type, string(r.Body))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 7 1 created
	// 7 2 paid
}
