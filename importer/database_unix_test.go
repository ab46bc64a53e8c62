//go:build unix

package importer_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/wheelworkhq/wheelwork/importer/database"
	"github.com/wheelworkhq/wheelwork/importer/dump"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// databases are the dumps of testdata by source.
var databases = []string{"xxl-job", "powerjob", "k-job"}

// TestMariaDB loads the dumps into a MariaDB, and checks that an import from it is that from
// the dump.
func TestMariaDB(t *testing.T) {
	for _, program := range []string{"mariadbd", "mariadb-install-db", "mariadb"} {
		if _, err := exec.LookPath(program); err != nil {
			testkit.Lacks(t, "%s is missing: apt-get install mariadb-server", program)
		}
	}
	dir := serverFolder(t, "mysql")
	as := []string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M"}
	if os.Geteuid() == 0 {
		as = append(as, "--user=mysql")
	}
	run(t, nil, exec.CommandContext(t.Context(), "mariadb-install-db", append(as, "--auth-root-authentication-method=normal", "--skip-test-db")...))
	socket := filepath.Join(dir, "socket")
	host, port, err := net.SplitHostPort(testkit.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command("mariadbd", append(as, "--socket="+socket, "--pid-file="+filepath.Join(dir, "pid"), "--bind-address="+host, "--port="+port,
		"--innodb-flush-log-at-trx-commit=0")...), "ready for connections")
	client := func(arguments ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "mariadb", append([]string{"--no-defaults", "--socket=" + socket, "--user=root", "--default-character-set=utf8mb4"}, arguments...)...)
	}
	for i, name := range databases {
		schema := "source" + strconv.Itoa(i)
		run(t, strings.NewReader("CREATE DATABASE "+schema+" CHARACTER SET utf8mb4; CREATE USER reader"+strconv.Itoa(i)+"@'127.0.0.1' IDENTIFIED BY 'p@ss:/?'; GRANT SELECT ON "+schema+".* TO reader"+strconv.Itoa(i)+"@'127.0.0.1'"), client())
		run(t, bytes.NewReader(testdata(t, name+".sql")), client(schema))
		same(t, name, "mysql://reader"+strconv.Itoa(i)+"@"+net.JoinHostPort(host, port)+"/"+schema, "p@ss:/?")
		same(t, name, "reader"+strconv.Itoa(i)+":p@ss:/?@tcp("+net.JoinHostPort(host, port)+")/"+schema, "")
	}
	_, err = database.Read(t.Context(), "mysql://reader0:wr0ng@"+net.JoinHostPort(host, port)+"/source0", "", func(string) bool { return true })
	if err == nil || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestPostgreSQL does the same with PostgreSQL, also with a dump of pg_dump.
func TestPostgreSQL(t *testing.T) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		testkit.Lacks(t, "initdb is missing: apt-get install postgresql")
	}
	bin := filepath.Dir(found[len(found)-1])
	dir := serverFolder(t, "postgres")
	command := func(ctx context.Context, program string, arguments ...string) *exec.Cmd {
		all := append([]string{filepath.Join(bin, program)}, arguments...)
		if os.Geteuid() == 0 {
			all = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, all...)
		}
		c := exec.CommandContext(ctx, all[0], all[1:]...)
		c.Dir = dir
		return c
	}
	data := filepath.Join(dir, "data")
	run(t, nil, command(t.Context(), "initdb", "-D", data, "-A", "trust", "-U", "owner", "-E", "UTF8", "--locale=C", "--no-sync"))
	host, port, err := net.SplitHostPort(testkit.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	start(t, command(context.Background(), "postgres", "-D", data, "-p", port, "-c", "listen_addresses="+host, "-c", "unix_socket_directories=", "-c", "fsync=off"), "ready to accept connections")
	address := func(schema string) string {
		return "postgres://owner@" + net.JoinHostPort(host, port) + "/" + schema + "?sslmode=disable"
	}
	for i, name := range databases {
		schema := "source" + strconv.Itoa(i)
		run(t, strings.NewReader("CREATE DATABASE "+schema), command(t.Context(), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", address("postgres")))
		run(t, strings.NewReader(forPostgres(t, name)), command(t.Context(), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", address(schema)))
		same(t, name, address(schema), "")
		for _, flag := range []string{"--inserts", "--clean"} {
			dumped := run(t, nil, command(t.Context(), "pg_dump", flag, address(schema)))
			s := source(t, name)
			tables, err := dump.Read(bytes.NewReader(dumped), s.Wants)
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Import(tables, options(t))
			if err != nil {
				t.Fatal(err)
			}
			if text(t, r) != string(testdata(t, name+".golden")) {
				t.Errorf("%s: a dump of pg_dump %s gives another import", name, flag)
			}
		}
	}
}

// same checks that an import from a database is that of the golden file.
func same(t *testing.T, name, address, password string) {
	t.Helper()
	s := source(t, name)
	tables, err := database.Read(t.Context(), address, password, s.Wants)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Import(tables, options(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, r); got != string(testdata(t, name+".golden")) {
		t.Errorf("%s: the import from the database differs from that of the dump", name)
		gotLines, want := strings.Split(got, "\n"), strings.Split(string(testdata(t, name+".golden")), "\n")
		for i := range min(len(gotLines), len(want)) {
			if gotLines[i] != want[i] {
				t.Errorf("line %d: %s, want %s", i+1, gotLines[i], want[i])
				break
			}
		}
	}
}

func testdata(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// serverFolder returns a temporary folder of the user that a server runs as.
func serverFolder(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wheelwork")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		u, err := user.Lookup(name)
		if err != nil {
			testkit.Lacks(t, "there is no user %s", name)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, in io.Reader, c *exec.Cmd) []byte {
	t.Helper()
	var said bytes.Buffer
	c.Stdin, c.Stderr = in, &said
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, said.String())
	}
	return out
}

// start starts a server and waits until it says that it is ready.
func start(t *testing.T, c *exec.Cmd, ready string) {
	t.Helper()
	said, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(said); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGQUIT)
		for range lines { //nolint:revive // until the end of its output
		}
		_ = c.Wait()
	})
	var all []string
	for line := range lines {
		if all = append(all, line); strings.Contains(line, ready) {
			go func() {
				for range lines { //nolint:revive // the server must not wait for a reader
				}
			}()
			return
		}
	}
	t.Fatalf("%s ended: %s", c, strings.Join(all, "\n"))
}

// types are the types of PostgreSQL for those of the dumps.
var types = strings.NewReplacer("tinyint", "smallint", "mediumtext", "text", "longtext", "text", "datetime", "timestamp", "double", "double precision", "bit(1)", "boolean")

// forPostgres turns a dump in the form of mysqldump into statements for PostgreSQL.
func forPostgres(t *testing.T, name string) string {
	t.Helper()
	source := testdata(t, name+".sql")
	var b strings.Builder
	create := regexp.MustCompile("(?s)CREATE TABLE `(\\w+)` \\(\n(.*?)\n\\) ENGINE")
	column := regexp.MustCompile("  `(\\w+)` ([^ ,]+)")
	order := map[string][]string{}
	boolean := map[string]bool{}
	var names []string
	for _, m := range create.FindAllSubmatch(source, -1) {
		table := string(m[1])
		names = append(names, table)
		var defined []string
		for _, c := range column.FindAllSubmatch(m[2], -1) {
			order[table] = append(order[table], string(c[1]))
			boolean[table+"."+string(c[1])] = string(c[2]) == "bit(1)"
			defined = append(defined, fmt.Sprintf("%q %s", c[1], types.Replace(string(c[2]))))
		}
		fmt.Fprintf(&b, "CREATE TABLE %s (%s);\n", table, strings.Join(defined, ", "))
	}
	tables, err := dump.Read(bytes.NewReader(source), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range names {
		for _, row := range tables[table] {
			var values []string
			for _, c := range order[table] {
				v, ok := row[c]
				switch {
				case !ok:
					values = append(values, "NULL")
				case boolean[table+"."+c]:
					values = append(values, strconv.FormatBool(v == "1"))
				default:
					values = append(values, "'"+strings.ReplaceAll(v, "'", "''")+"'")
				}
			}
			fmt.Fprintf(&b, "INSERT INTO %s VALUES (%s);\n", table, strings.Join(values, ", "))
		}
	}
	return b.String()
}
