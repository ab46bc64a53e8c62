// Package dump reads the rows of tables from a dump of a database in SQL: the INSERT and
// REPLACE statements of mysqldump, and the INSERT statements and COPY blocks of pg_dump. It
// executes nothing: other statements are skipped, and rows that a function would compute
// have no value in that column.
package dump

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/wheelworkhq/wheelwork/importer/rows"
)

// Bounds of what a dump may hold of the wanted tables.
const (
	maxValue = 16 << 20  // bytes of one value
	maxBytes = 256 << 20 // bytes of all values
	maxRows  = 2_000_000
)

// Read returns the rows of the tables that are wanted, given by their names in lower case. It
// reads a dump of any size: other tables take no memory.
func Read(r io.Reader, wanted func(table string) bool) (rows.Tables, error) {
	d := &reader{
		in: bufio.NewReaderSize(r, 64<<10), line: 1, lineStart: true, backslash: true, wanted: wanted,
		columns: map[string][]string{}, tables: rows.Tables{},
	}
	for {
		err := d.statement()
		if errors.Is(err, io.EOF) {
			return d.tables, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the dump: %w", d.line, err)
		}
	}
}

type reader struct {
	in        *bufio.Reader
	line      int
	lineStart bool // only space so far on this line
	backslash bool // a backslash in '…' escapes: MySQL without NO_BACKSLASH_ESCAPES
	wanted    func(string) bool
	columns   map[string][]string // of the tables that the dump creates
	tables    rows.Tables
	bytes     int
	rows      int
	ahead     *token
}

// The kinds of tokens.
const (
	word   = iota // also numbers
	quoted        // "…" and `…`
	text          // '…'
	symbol        // one character
)

type token struct {
	kind int
	text string
}

func (t token) is(keyword string) bool { return t.kind == word && strings.EqualFold(t.text, keyword) }
func (t token) isSymbol(s string) bool { return t.kind == symbol && t.text == s }
func (t token) isName() bool           { return t.kind == word || t.kind == quoted }

func (d *reader) readByte() (byte, error) {
	c, err := d.in.ReadByte()
	if err != nil {
		return 0, err
	}
	if c == '\n' {
		d.line++
		d.lineStart = true
	} else if c != ' ' && c != '\t' && c != '\r' {
		d.lineStart = false
	}
	return c, nil
}

func (d *reader) peek() byte {
	next, err := d.in.Peek(1)
	if err != nil {
		return 0
	}
	return next[0]
}

// restOfLine reads up to the end of the line and returns at most 4 KiB of it.
func (d *reader) restOfLine() (string, error) {
	var b []byte
	for {
		c, err := d.readByte()
		if err != nil || c == '\n' {
			if err != nil && len(b) > 0 {
				err = nil
			}
			return string(b), err
		}
		if len(b) < 4<<10 {
			b = append(b, c)
		}
	}
}

// next returns the next token. The end of the dump is io.EOF.
func (d *reader) next() (token, error) {
	if t := d.ahead; t != nil {
		d.ahead = nil
		return *t, nil
	}
	for {
		start := d.lineStart
		c, err := d.readByte()
		if err != nil {
			return token{}, err
		}
		switch {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == 0 || c == 0xEF || c == 0xBB || c == 0xBF:
			continue
		case c == '-' && d.peek() == '-', c == '#' && d.backslash:
			comment, err := d.restOfLine()
			if err != nil {
				return token{}, err
			}
			d.learn(comment)
			continue
		case c == '/' && d.peek() == '*':
			if err := d.comment(); err != nil {
				return token{}, err
			}
			continue
		case c == '\\' && start: // a command of psql
			if _, err := d.restOfLine(); err != nil {
				return token{}, err
			}
			d.backslash = false
			continue
		case c == '\'':
			s, err := d.text('\'', d.backslash)
			return token{text, s}, err
		case c == '"':
			s, err := d.text('"', d.backslash)
			return token{quoted, s}, err
		case c == '`':
			s, err := d.text('`', false)
			return token{quoted, s}, err
		case c == '$' && !d.backslash:
			if s, ok, err := d.dollar(); ok || err != nil {
				return token{text, s}, err
			}
			return token{symbol, "$"}, nil
		case isWord(c):
			return d.word(c)
		}
		return token{symbol, string(c)}, nil
	}
}

func isWord(c byte) bool {
	return c == '_' || c == '.' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// word reads a word or a number, and a string with a prefix.
func (d *reader) word(first byte) (token, error) {
	b := []byte{first}
	for c := d.peek(); isWord(c) || (c == '+' || c == '-') && isExponent(b); c = d.peek() {
		if len(b) > 4<<10 {
			return token{}, errors.New("a word is longer than 4 KiB")
		}
		if _, err := d.readByte(); err != nil {
			return token{}, err
		}
		b = append(b, c)
	}
	s := string(b)
	if d.peek() != '\'' {
		return token{word, s}, nil
	}
	switch prefix := strings.ToLower(s); {
	case prefix == "e", prefix == "n", prefix == "x", prefix == "b", prefix == "u", strings.HasPrefix(prefix, "_"):
		_, _ = d.readByte()
		value, err := d.text('\'', prefix == "e" || d.backslash && prefix != "x" && prefix != "b")
		if err != nil {
			return token{}, err
		}
		switch prefix {
		case "x":
			value, err = unhex(value)
		case "b":
			value, err = bits(value)
		}
		return token{text, value}, err
	}
	return token{word, s}, nil
}

func isExponent(b []byte) bool {
	last := b[len(b)-1]
	return '0' <= b[0] && b[0] <= '9' && (last == 'e' || last == 'E') && !bytes.HasPrefix(b, []byte("0x"))
}

// text reads a quoted text behind its first quote.
func (d *reader) text(quote byte, escapes bool) (string, error) {
	var b []byte
	for {
		c, err := d.readByte()
		if err != nil {
			return "", unexpectedEnd(err)
		}
		switch {
		case c == quote && d.peek() == quote:
			_, _ = d.readByte()
		case c == quote:
			return string(b), nil
		case c == '\\' && escapes:
			if c, err = d.readByte(); err != nil {
				return "", unexpectedEnd(err)
			}
			c = unescaped(c)
		}
		if b = append(b, c); len(b) > maxValue {
			return "", fmt.Errorf("a value is longer than %d MiB", maxValue>>20)
		}
	}
}

// unexpectedEnd makes a plain error of the end of the dump inside a statement.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the dump ends inside a statement: it is incomplete")
	}
	return err
}

func unescaped(c byte) byte {
	switch c {
	case '0':
		return 0
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'v':
		return '\v'
	case 'Z':
		return 0x1A
	}
	return c
}

// dollar reads a text between $TAG$ and $TAG$, as functions have it.
func (d *reader) dollar() (string, bool, error) {
	const longest = 64
	head, _ := d.in.Peek(longest)
	end := bytes.IndexByte(head, '$')
	if end < 0 || bytes.ContainsFunc(head[:end], func(r rune) bool { return !isWord(byte(min(r, 0x80))) || r == '.' }) {
		return "", false, nil
	}
	tag := "$" + string(head[:end+1])
	for range end + 1 {
		_, _ = d.readByte()
	}
	var tail []byte
	for {
		c, err := d.readByte()
		if err != nil {
			return "", false, unexpectedEnd(err)
		}
		if tail = append(tail, c); len(tail) > len(tag) {
			tail = tail[1:]
		}
		if string(tail) == tag {
			return "", true, nil // only functions have such texts
		}
	}
}

// comment reads a comment behind its slash.
func (d *reader) comment() error {
	var last byte
	var b []byte
	_, _ = d.readByte() // the asterisk
	for {
		c, err := d.readByte()
		if err != nil {
			return unexpectedEnd(err)
		}
		if last == '*' && c == '/' {
			d.learn(string(b))
			return nil
		}
		if last = c; len(b) < 4<<10 {
			b = append(b, c)
		}
	}
}

// learn takes from a comment whether backslashes escape.
func (d *reader) learn(comment string) {
	if strings.Contains(comment, "PostgreSQL database dump") || strings.Contains(comment, "NO_BACKSLASH_ESCAPES") {
		d.backslash = false
	}
}

// statement reads one statement. io.EOF is the end of the dump.
func (d *reader) statement() error {
	t, err := d.next()
	if err != nil {
		return err
	}
	switch {
	case t.isSymbol(";"):
		return nil
	case t.is("delimiter"):
		return d.delimiter()
	case t.is("insert"), t.is("replace"):
		err = d.insert()
	case t.is("create"):
		err = d.create()
	case t.is("copy"):
		err = d.copy()
	case t.is("set"):
		err = d.set()
	default:
		err = d.skip()
	}
	return unexpectedEnd(err)
}

// skip reads to the end of the statement. The end of the dump ends it too.
func (d *reader) skip() error {
	for {
		t, err := d.next()
		if errors.Is(err, io.EOF) || err == nil && t.isSymbol(";") {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// delimiter skips the procedures between DELIMITER ;; and DELIMITER ;
func (d *reader) delimiter() error {
	mark, err := d.restOfLine()
	for err == nil && strings.TrimSpace(mark) != ";" {
		var line string
		if line, err = d.restOfLine(); err == nil && len(line) > 9 && strings.EqualFold(line[:9], "delimiter") {
			mark = line[9:]
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// set reads a SET statement.
func (d *reader) set() error {
	for {
		t, err := d.next()
		switch {
		case errors.Is(err, io.EOF), err == nil && t.isSymbol(";"):
			return nil
		case err != nil:
			return err
		case t.is("standard_conforming_strings"):
			d.backslash = false
		case t.kind == text:
			d.learn(t.text)
		}
	}
}

// name reads the name of a table, and leaves out its schema.
func (d *reader) name() (string, error) {
	var parts []string
	for {
		t, err := d.next()
		if err != nil {
			return "", err
		}
		if t.isName() {
			if t.kind == word && len(parts) > 0 && !strings.HasPrefix(t.text, ".") && !strings.HasSuffix(parts[len(parts)-1], ".") {
				d.ahead = &t
				break
			}
			parts = append(parts, t.text)
			if t.kind == word && !strings.HasSuffix(t.text, ".") && d.peek() != '.' {
				if c := d.peek(); c != '"' && c != '`' {
					break
				}
			}
			if t.kind == quoted && d.peek() != '.' {
				break
			}
			continue
		}
		d.ahead = &t
		break
	}
	whole := strings.ToLower(strings.Join(parts, ""))
	return whole[strings.LastIndexByte(whole, '.')+1:], nil
}

// notColumns begin the lines of CREATE TABLE that define no column.
var notColumns = []string{"primary", "key", "unique", "index", "constraint", "fulltext", "spatial", "foreign", "check", "exclude", "like", "period"}

// create reads a CREATE statement; of a table it keeps the columns.
func (d *reader) create() error {
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return err
		case t.isSymbol(";"):
			return nil
		case t.is("table"):
			return d.createTable()
		case !t.is("temporary") && !t.is("unlogged"):
			return d.skip()
		}
	}
}

func (d *reader) createTable() error {
	t, err := d.next()
	if err != nil {
		return err
	}
	if t.is("if") { // IF NOT EXISTS
		for range 2 {
			if _, err := d.next(); err != nil {
				return err
			}
		}
	} else {
		d.ahead = &t
	}
	table, err := d.name()
	if err != nil {
		return err
	}
	if t, err = d.next(); err != nil || !t.isSymbol("(") {
		d.ahead = &t
		return cmpErr(err, d.skip)
	}
	var columns []string
	depth, first := 1, true
	for depth > 0 {
		if t, err = d.next(); err != nil {
			return err
		}
		if first && t.isName() && !isNotColumn(t) && len(columns) < 4096 {
			columns = append(columns, strings.ToLower(t.text))
		}
		first = false
		switch {
		case t.isSymbol("("):
			depth++
		case t.isSymbol(")"):
			depth--
		case t.isSymbol(",") && depth == 1:
			first = true
		}
	}
	if d.wanted(table) {
		d.columns[table] = columns
		if !d.tables.Has(table) {
			d.tables[table] = nil
		}
	}
	return d.skip()
}

func cmpErr(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

func isNotColumn(t token) bool {
	if t.kind != word {
		return false
	}
	for _, w := range notColumns {
		if strings.EqualFold(t.text, w) {
			return true
		}
	}
	return false
}

// names reads a list of columns behind its parenthesis.
func (d *reader) names() ([]string, error) {
	var names []string
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return nil, err
		case t.isSymbol(")"):
			return names, nil
		case t.isName() && len(names) < 4096:
			names = append(names, strings.ToLower(t.text))
		}
	}
}

// insert reads INSERT INTO and REPLACE INTO.
func (d *reader) insert() error {
	var t token
	var err error
	for !t.is("into") {
		if t, err = d.next(); err != nil {
			return err
		}
		if t.isSymbol(";") {
			return nil
		}
	}
	table, err := d.name()
	if err != nil {
		return err
	}
	if !d.wanted(table) {
		return d.skip()
	}
	columns := d.columns[table]
	for {
		if t, err = d.next(); err != nil {
			return err
		}
		switch {
		case t.isSymbol("("):
			if columns, err = d.names(); err != nil {
				return err
			}
		case t.is("values"), t.is("value"):
			return d.values(table, columns)
		case t.isSymbol(";"):
			return nil
		case t.is("select"):
			return d.skip()
		}
	}
}

// values reads rows in parentheses up to the end of the statement.
func (d *reader) values(table string, columns []string) error {
	for {
		t, err := d.next()
		if err != nil {
			return err
		}
		switch {
		case t.isSymbol(";"):
			return nil
		case t.isSymbol(","):
		case t.isSymbol("("):
			values, err := d.row()
			if err != nil {
				return err
			}
			if err := d.add(table, columns, values); err != nil {
				return err
			}
		default: // ON DUPLICATE KEY UPDATE, ON CONFLICT
			return d.skip()
		}
	}
}

// row reads the values of a row; nil is NULL.
func (d *reader) row() ([]*string, error) {
	var values []*string
	var one []token
	end := func() {
		values = append(values, valueOf(one))
		one = one[:0]
	}
	for depth := 1; ; {
		t, err := d.next()
		if err != nil {
			return nil, err
		}
		switch {
		case t.isSymbol("("):
			depth++
		case t.isSymbol(")"):
			if depth--; depth == 0 {
				end()
				return values, nil
			}
		case t.isSymbol(",") && depth == 1:
			if end(); len(values) > 4096 {
				return nil, errors.New("a row has more than 4096 values")
			}
			continue
		}
		if len(one) < 8 {
			one = append(one, t)
		}
	}
}

// valueOf returns the value of an expression that needs no computation, otherwise nil.
func valueOf(tokens []token) *string {
	sign := ""
	if len(tokens) > 1 && tokens[0].kind == word && strings.HasPrefix(tokens[0].text, "_") && tokens[1].kind != symbol {
		tokens = tokens[1:] // a character set, as _binary
	}
	if len(tokens) > 1 && (tokens[0].isSymbol("-") || tokens[0].isSymbol("+")) {
		sign = strings.TrimPrefix(tokens[0].text, "+")
		tokens = tokens[1:]
	}
	if len(tokens) == 0 || len(tokens) > 1 && !tokens[1].isSymbol(":") { // a cast as '…'::bytea keeps the value
		return nil
	}
	t := tokens[0]
	s := sign + t.text
	switch {
	case t.kind == symbol:
		return nil
	case t.kind == quoted:
		return &s // MySQL writes texts in such quotes as well
	case t.kind == text:
		return &s
	case t.is("true"):
		s = "1"
	case t.is("false"):
		s = "0"
	case strings.HasPrefix(strings.ToLower(s), "0x"):
		value, err := unhex(s[2:])
		if err != nil {
			return nil
		}
		s = value
	case s == "" || !strings.ContainsAny(t.text[:1], "0123456789."):
		return nil // NULL, DEFAULT, a function
	}
	return &s
}

func (d *reader) add(table string, columns []string, values []*string) error {
	if len(columns) == 0 {
		return fmt.Errorf("table %s has rows without names of columns: dump it with its CREATE TABLE, or with --complete-insert", table)
	}
	if len(values) != len(columns) {
		return fmt.Errorf("a row of table %s has %d values for %d columns", table, len(values), len(columns))
	}
	row := make(rows.Row, len(columns))
	for i, v := range values {
		if v != nil {
			row[columns[i]] = *v
			d.bytes += len(*v)
		}
	}
	if d.rows++; d.rows > maxRows || d.bytes > maxBytes {
		return fmt.Errorf("the tables of definitions have over %d rows or %d MiB: this is no dump of a scheduler", maxRows, maxBytes>>20)
	}
	d.tables[table] = append(d.tables[table], row)
	return nil
}

// copy reads COPY … FROM stdin and the lines behind it.
func (d *reader) copy() error {
	d.backslash = false // only PostgreSQL has it
	table, err := d.name()
	if err != nil {
		return err
	}
	columns := d.columns[table]
	stdin := false
	for {
		t, err := d.next()
		if err != nil {
			return err
		}
		if t.isSymbol("(") && !stdin {
			if columns, err = d.names(); err != nil {
				return err
			}
		}
		stdin = stdin || t.is("stdin")
		if t.isSymbol(";") {
			break
		}
	}
	if !stdin {
		return nil
	}
	if _, err := d.restOfLine(); err != nil {
		return err
	}
	keep := d.wanted(table)
	if keep && !d.tables.Has(table) {
		d.tables[table] = nil
	}
	for {
		values, end, err := d.copyLine(keep)
		if err != nil || end {
			return err
		}
		if keep {
			if err := d.add(table, columns, values); err != nil {
				return err
			}
		}
	}
}

// copyLine reads one line of a COPY block; end is its last line.
func (d *reader) copyLine(keep bool) (values []*string, end bool, err error) {
	var b []byte
	for {
		c, err := d.readByte()
		if err != nil {
			return nil, false, err
		}
		if c == '\n' {
			break
		}
		if b = append(b, c); !keep && len(b) > 2 {
			b = b[:3] // the line is not needed
		}
		if len(b) > maxValue {
			return nil, false, fmt.Errorf("a row is longer than %d MiB", maxValue>>20)
		}
	}
	b = bytes.TrimSuffix(b, []byte("\r"))
	if string(b) == `\.` {
		return nil, true, nil
	}
	for field := range bytes.SplitSeq(b, []byte("\t")) {
		if string(field) == `\N` {
			values = append(values, nil)
			continue
		}
		s := uncopied(field)
		values = append(values, &s)
	}
	return values, false, nil
}

// uncopied undoes the escapes of a field of a COPY block.
func uncopied(field []byte) string {
	out := make([]byte, 0, len(field))
	for i := 0; i < len(field); i++ {
		c := field[i]
		if c != '\\' || i+1 == len(field) {
			out = append(out, c)
			continue
		}
		i++
		switch c = field[i]; {
		case '0' <= c && c <= '7':
			n := 0
			for k := 0; k < 3 && i < len(field) && '0' <= field[i] && field[i] <= '7'; k++ {
				n = n*8 + int(field[i]-'0')
				i++
			}
			i--
			out = append(out, byte(n))
		case c == 'x' && i+1 < len(field) && hexValue(field[i+1]) >= 0:
			n := 0
			for k := 0; k < 2 && i+1 < len(field) && hexValue(field[i+1]) >= 0; k++ {
				i++
				n = n*16 + hexValue(field[i])
			}
			out = append(out, byte(n))
		case c == 'Z':
			out = append(out, c)
		default:
			out = append(out, unescaped(c))
		}
	}
	return string(out)
}

func unhex(s string) (string, error) {
	if len(s)%2 == 1 {
		s = "0" + s
	}
	out := make([]byte, 0, len(s)/2)
	for i := 0; i < len(s); i += 2 {
		high, low := hexValue(s[i]), hexValue(s[i+1])
		if high < 0 || low < 0 {
			return "", fmt.Errorf("%.20q is no hexadecimal number", s)
		}
		out = append(out, byte(high<<4|low))
	}
	return string(out), nil
}

func hexValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// bits returns a bit string as a decimal number.
func bits(s string) (string, error) {
	if strings.Trim(s, "01") != "" || len(s) > 63 {
		return "", fmt.Errorf("b'%.70s' is no bit string of up to 63 bits", s)
	}
	var n int64
	for i := range len(s) {
		n = n<<1 | int64(s[i]-'0')
	}
	return fmt.Sprint(n), nil
}
