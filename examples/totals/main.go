// Totals adds up orders. It reads a CSV with the columns customer, item,
// quantity and price from standard input and writes totals per customer, as
// JSON, to standard output.
//
// It is a plain Go program without any reference to Wheelwork. Compiled for WASI it is a
// handler; compiled for the local machine it is a command.
package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// exitData is the exit code for invalid input (EX_DATAERR in sysexits.h): Wheelwork does
// not retry such a run.
const exitData = 65

type summary struct {
	Orders    int        `json:"orders"`
	Cents     int64      `json:"cents"`
	Customers []customer `json:"customers"` // by total, largest first
}

type customer struct {
	Name   string `json:"name"`
	Orders int    `json:"orders"`
	Cents  int64  `json:"cents"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "totals:", err)
		if errors.Is(err, errInput) {
			os.Exit(exitData)
		}
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	s, err := total(in)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d orders of %d customers\n", s.Orders, len(s.Customers))
	return json.NewEncoder(out).Encode(s)
}

var errInput = errors.New("bad input")

func total(in io.Reader) (summary, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord = 4
	if _, err := r.Read(); err != nil {
		return summary{}, fmt.Errorf("%w: read header: %w", errInput, err)
	}
	s := summary{Customers: []customer{}}
	byName := make(map[string]int) // index in s.Customers
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return summary{}, fmt.Errorf("%w: %w", errInput, err)
		}
		cents, err := orderCents(record[2], record[3])
		if err != nil {
			line, _ := r.FieldPos(2)
			return summary{}, fmt.Errorf("%w: line %d: %w", errInput, line, err)
		}
		i, ok := byName[record[0]]
		if !ok {
			i = len(s.Customers)
			byName[record[0]] = i
			s.Customers = append(s.Customers, customer{Name: record[0]})
		}
		s.Customers[i].Orders++
		s.Customers[i].Cents += cents
		s.Orders++
		s.Cents += cents
	}
	slices.SortFunc(s.Customers, func(a, b customer) int {
		return cmp.Or(cmp.Compare(b.Cents, a.Cents), cmp.Compare(a.Name, b.Name))
	})
	return s, nil
}

// orderCents multiplies a quantity by a price such as 12.50 and returns cents.
func orderCents(quantity, price string) (int64, error) {
	n, err := strconv.ParseInt(quantity, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("quantity: %w", err)
	}
	p, err := strconv.ParseFloat(price, 64)
	if err != nil {
		return 0, fmt.Errorf("price: %w", err)
	}
	return n * int64(p*100+0.5), nil
}
