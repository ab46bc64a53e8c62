package dump_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/importer/dump"
	"github.com/wheelworkhq/wheelwork/importer/rows"
)

func read(t *testing.T, text string) rows.Tables {
	t.Helper()
	tables, err := dump.Read(strings.NewReader(text), func(table string) bool { return table == "t" })
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func TestRead(t *testing.T) {
	for name, x := range map[string]struct {
		text string
		want []rows.Row
	}{
		"columns of CREATE TABLE": {
			"CREATE TABLE `t` (\n `a` int COMMENT 'x, (y)',\n `key` enum('(',','),\n PRIMARY KEY (`a`),\n KEY `k` (`key`)\n);\nINSERT INTO `t` VALUES (1,'x'),(2,NULL);",
			[]rows.Row{{"a": "1", "key": "x"}, {"a": "2"}},
		},
		"escapes of MySQL": {
			`INSERT INTO db.t (a) VALUES ('it''s'),('it\'s'),('a\\'),('\n\t\0\Z\%'),("double \" quotes");`,
			[]rows.Row{{"a": "it's"}, {"a": "it's"}, {"a": `a\`}, {"a": "\n\t\x00\x1a%"}, {"a": `double " quotes`}},
		},
		"no backslashes": {
			"/*!40101 SET SQL_MODE='NO_BACKSLASH_ESCAPES' */;\nINSERT INTO t (a) VALUES ('a\\');",
			[]rows.Row{{"a": `a\`}},
		},
		"PostgreSQL": {
			"-- PostgreSQL database dump\nSELECT pg_catalog.set_config('search_path', '', false);\nINSERT INTO public.\"t\" (a, \"B\") VALUES ('c:\\', E'it\\'s\\n'), ('\\x41'::bytea, true);",
			[]rows.Row{{"a": `c:\`, "b": "it's\n"}, {"a": `\x41`, "b": "1"}},
		},
		"COPY": {
			"COPY public.t (a, b) FROM stdin;\n1\tit's \\\\ \\t\\n\\101\\x41\n\\N\t\n\\.\nINSERT INTO t (a) VALUES (3);",
			[]rows.Row{{"a": "1", "b": "it's \\ \t\nAA"}, {"b": ""}, {"a": "3"}},
		},
		"numbers": {
			"INSERT INTO t (a,b,c,d,e) VALUES (-1,1.5e-3,0x4142,b'101',_binary 'x');",
			[]rows.Row{{"a": "-1", "b": "1.5e-3", "c": "AB", "d": "5", "e": "x"}},
		},
		"functions have no value": {
			"INSERT IGNORE INTO t (a,b,c) VALUES (NOW(),CONCAT('a',',',')'),'z') ON DUPLICATE KEY UPDATE a=VALUES(a);",
			[]rows.Row{{"c": "z"}},
		},
		"other statements": {
			"# INSERT INTO t (a) VALUES (1);\n-- INSERT INTO t (a) VALUES (2);\n/* INSERT INTO t (a) VALUES (3); */\nINSERT INTO other VALUES ('INSERT INTO t (a) VALUES (4);');\n" +
				"DELIMITER ;;\nCREATE PROCEDURE p() INSERT INTO t (a) VALUES (5);;\nDELIMITER ;\nREPLACE INTO t (a) VALUES (6);\nUPDATE t SET a='7';",
			[]rows.Row{{"a": "6"}},
		},
		"a function in dollars": {
			"SET standard_conforming_strings = on;\nCREATE FUNCTION f() AS $x$ INSERT INTO t (a) VALUES (1); $$ $x$;\n\\connect db\nINSERT INTO t (a) VALUES (2);",
			[]rows.Row{{"a": "2"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := read(t, x.text)["t"]; !reflect.DeepEqual(got, x.want) {
				t.Errorf("%q\nwant %q", got, x.want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"INSERT INTO t VALUES (1);":                                         "line 1 of the dump: table t has rows without names of columns",
		"\nINSERT INTO t (a,b) VALUES (1);":                                 "line 2 of the dump: a row of table t has 1 values for 2 columns",
		"INSERT INTO t (a) VALUES ('it":                                     "incomplete",
		"INSERT INTO t (a) VALUES (":                                        "incomplete",
		"COPY t (a) FROM stdin;\n1\n":                                       "incomplete",
		"CREATE TABLE t (a":                                                 "incomplete",
		"/* comment":                                                        "incomplete",
		"INSERT INTO t (a) VALUES (x'zz');":                                 "hexadecimal",
		strings.Repeat("a", 5<<10) + " ; ":                                  "longer than 4 KiB",
		"INSERT INTO t (a) VALUES (b'12');":                                 "bit string",
		"INSERT INTO t (a) VALUES ('" + strings.Repeat("a", 17<<20) + "');": "longer than 16 MiB",
	} {
		_, err := dump.Read(strings.NewReader(text), func(string) bool { return true })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("CREATE TABLE `t` (`a` int, PRIMARY KEY (`a`));\nINSERT INTO `t` VALUES (1),('it\\'s'),(NULL);")
	f.Add("COPY public.t (a, b) FROM stdin;\n1\t\\N\n\\.\n")
	f.Add("SET standard_conforming_strings = on; CREATE FUNCTION f() AS $$ ; $$; INSERT INTO t (a) VALUES (E'\\'');")
	f.Add("DELIMITER ;;\n;;\nDELIMITER ;\n/* */ # x\n-- y\n")
	f.Fuzz(func(t *testing.T, text string) {
		tables, err := dump.Read(strings.NewReader(text), func(string) bool { return true })
		if err != nil {
			return
		}
		for _, all := range tables {
			for _, row := range all {
				for column := range row {
					_, _, _, _ = row.Text(column), row.Int(column), row.Truth(column), row.Millis(column)
				}
			}
		}
	})
}
