// Package database reads the rows of tables from a running database: MySQL or MariaDB, and
// PostgreSQL. It reads in one transaction that cannot write.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/wheelworkhq/wheelwork/importer/rows"
)

// maxRows bounds the rows of all tables.
const maxRows = 2_000_000

// Is reports whether a text is the address of a database and not the name of a file.
func Is(text string) bool {
	return strings.Contains(text, "://") || strings.Contains(text, "@tcp(") || strings.Contains(text, "@unix(")
}

// Read returns the rows of the wanted tables of a database. The address is a URL
// (mysql://USER:PASSWORD@HOST:PORT/NAME, postgres://…) or a DSN of MySQL
// (USER:PASSWORD@tcp(HOST:PORT)/NAME). password is used when the address has none. No error
// contains the address.
func Read(ctx context.Context, address, password string, wanted func(table string) bool) (rows.Tables, error) {
	db, tables, err := open(address, password)
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // only read
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	names, err := list(ctx, tx, tables)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	all, n := rows.Tables{}, 0
	for _, name := range names {
		table := strings.ToLower(name)
		if !wanted(table) {
			continue
		}
		quote := "`"
		if tables == tablesOfPostgres {
			quote = `"`
		}
		found, err := query(ctx, tx, "SELECT * FROM "+quote+strings.ReplaceAll(name, quote, quote+quote)+quote)
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", name, err)
		}
		if n += len(found); n > maxRows {
			return nil, fmt.Errorf("the tables have over %d rows", maxRows)
		}
		all[table] = found
	}
	return all, nil
}

// The queries of the names of tables.
const (
	tablesOfMySQL    = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1"
	tablesOfPostgres = "SELECT table_name FROM information_schema.tables WHERE table_schema = ANY (current_schemas(false)) ORDER BY 1"
)

// errAddress does not repeat the address, which has a password.
var errAddress = errors.New("the address of the database cannot be read: want mysql://USER:PASSWORD@HOST:PORT/NAME or postgres://USER:PASSWORD@HOST:PORT/NAME")

func open(address, password string) (db *sql.DB, tables string, err error) {
	if strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://") {
		u, err := url.Parse(address)
		if err != nil {
			return nil, "", errAddress
		}
		if _, has := u.User.Password(); !has && password != "" {
			u.User = url.UserPassword(u.User.Username(), password)
		}
		if db, err = sql.Open("pgx", u.String()); err != nil {
			return nil, "", errAddress
		}
		return db, tablesOfPostgres, nil
	}
	config, err := mysqlConfig(address)
	if err != nil {
		return nil, "", errAddress
	}
	if config.Passwd == "" {
		config.Passwd = password
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, "", errAddress
	}
	return sql.OpenDB(connector), tablesOfMySQL, nil
}

func mysqlConfig(address string) (*mysql.Config, error) {
	if !strings.Contains(address, "://") {
		return mysql.ParseDSN(address)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return nil, errAddress
	}
	host := u.Host
	if u.Port() == "" {
		host += ":3306"
	}
	config, err := mysql.ParseDSN("tcp(" + host + ")/" + strings.TrimPrefix(u.Path, "/") + "?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	return config, nil
}

func list(ctx context.Context, tx *sql.Tx, text string) (names []string, err error) {
	found, err := tx.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer found.Close() //nolint:errcheck // Err says what happened
	for found.Next() {
		var name string
		if err := found.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, found.Err()
}

func query(ctx context.Context, tx *sql.Tx, text string) (all []rows.Row, err error) {
	found, err := tx.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer found.Close() //nolint:errcheck // Err says what happened
	columns, err := found.Columns()
	if err != nil {
		return nil, err
	}
	values, targets := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	for found.Next() {
		if err := found.Scan(targets...); err != nil {
			return nil, err
		}
		row := rows.Row{}
		for i, v := range values {
			if v.Valid {
				row[strings.ToLower(columns[i])] = v.String
			}
		}
		if all = append(all, row); len(all) > maxRows {
			return nil, fmt.Errorf("over %d rows", maxRows)
		}
	}
	return all, found.Err()
}
