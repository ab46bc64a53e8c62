// Command screenshots takes pictures of the pages of the console. It starts the program
// on a temporary directory, fills it with jobs and runs, signs in, and saves a PNG of each
// page. The pictures in docs/screenshots are made with --docs.
//
//	go run . [-o DIR] [--docs] [--only REGEXP] [--list]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("screenshots", flag.ContinueOnError)
	flags.SetOutput(notes)
	dir := flags.String("o", "screenshots", "directory for the pictures; it is created")
	only := flags.String("only", "", "take the pictures whose names match this regular expression")
	docs := flags.Bool("docs", false, "take only the pictures that the documents have, as small files")
	list := flags.Bool("list", false, "print the names and the addresses, and take none")
	program := flags.String("program", "", "path of the wheelwork binary; default: build it from these sources")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q: name pages with --only", flags.Arg(0))
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	wanted := slices.DeleteFunc(shots(), func(s shot) bool { return !match.MatchString(s.name) || *docs && !s.docs })
	if len(wanted) == 0 {
		return fmt.Errorf("--only %q: no picture has such a name; --list prints them", *only)
	}
	if *list {
		for _, s := range wanted {
			fmt.Fprintf(out, "%-28s %s\n", s.name, s.address)
		}
		return nil
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		return errors.New("no browser: install chromium (Debian: apt-get install chromium)")
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	return take(ctx, *program, chromium, *dir, wanted, notes)
}

// take starts a server with data, and saves the pictures.
func take(ctx context.Context, program, chromium, dir string, wanted []shot, notes io.Writer) (err error) {
	data, err := os.MkdirTemp("", "wheelwork-screenshots-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	if program == "" {
		fmt.Fprintln(notes, "screenshots: build the program")
		if program, err = build(ctx, data); err != nil {
			return err
		}
	}
	fmt.Fprintln(notes, "screenshots: start it and store jobs and runs")
	d, err := start(ctx, program, filepath.Join(data, "data"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	return d.withWorker(ctx, func(ctx context.Context) error {
		objects, err := d.fill(ctx)
		if err != nil {
			return fmt.Errorf("store the data of the pages: %w", err)
		}
		return photograph(ctx, chromium, filepath.Join(data, "browser"), d.LoginURL, d.URL, objects, dir, wanted, notes)
	})
}

// build builds the program from the sources of this repository.
func build(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/wheelworkhq/wheelwork").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of wheelwork (run this in the folder tools/screenshots): %w", err)
	}
	program := filepath.Join(dir, "wheelwork")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/wheelwork")
	cmd.Dir = strings.TrimSpace(string(root))
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build wheelwork: %w\n%s", err, text)
	}
	return program, nil
}
