// A client with gocql: see `_drivers.py`.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const patience = 60 * time.Second

// Column is a column of the table of types and values.
type Column struct {
	Name   string
	Type   string
	Values [][2]any
}

var input = bufio.NewScanner(os.Stdin)

func main() {
	log.SetFlags(log.Lshortfile)
	port, err := strconv.Atoi(os.Args[2])
	ok(err)
	cluster := gocql.NewCluster(os.Args[1])
	cluster.Port = port
	cluster.Authenticator = gocql.PasswordAuthenticator{Username: "admin", Password: os.Getenv("PASSWORD")}
	cluster.Timeout, cluster.ConnectTimeout = patience, patience
	// The driver tries a node that is down again after a minute by default.
	cluster.ReconnectInterval = 200 * time.Millisecond
	session, err := cluster.CreateSession()
	ok(err)
	defer session.Close()

	columns := readColumns(os.Args[3])
	types(session, columns)
	pages(session)
	batches(session)
	conditions(session)
	metadata(session, columns)
	events(session, "announced")
	restart(session)
	events(session, "announced_again")
}

func readColumns(path string) []Column {
	file, err := os.Open(path)
	ok(err)
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.UseNumber()
	var table struct{ Columns []Column }
	ok(decoder.Decode(&table))
	return table.Columns
}

func types(session *gocql.Session, columns []Column) {
	var names, marks []string
	for _, column := range columns {
		names = append(names, column.Name)
		marks = append(marks, "?")
		// The elements of a tuple are bound and scanned one by one.
		if tuple, isTuple := strings.CutPrefix(column.Type, "frozen<tuple<"); isTuple {
			marks[len(marks)-1] = "(?" + strings.Repeat(", ?", strings.Count(tuple, ",")) + ")"
		}
	}
	list := strings.Join(names, ", ")
	insert := fmt.Sprintf("INSERT INTO shop.kinds (id, %s) VALUES (?, %s)", list, strings.Join(marks, ", "))
	read := func(id int) ([]gocql.ColumnInfo, []any) {
		iter := session.Query("SELECT "+list+" FROM shop.kinds WHERE id = ?", id).Iter()
		data, err := iter.RowData()
		ok(err)
		check(iter.Scan(data.Values...), true)
		ok(iter.Close())
		return iter.Columns(), data.Values
	}
	write := func(id int, values []any) {
		ok(session.Query(insert, append([]any{id}, values...)...).Exec())
	}
	var expected, unset []any
	for row := 0; row < 2; row++ {
		infos, seen := read(row)
		expected, unset = nil, nil
		for i, column := range columns {
			value := native(infos[i].TypeInfo, column.Values[row][1])
			if elements, isTuple := value.([]any); isTuple && infos[i].TypeInfo.Type() == gocql.TypeTuple {
				expected = append(expected, elements...)
				unset = append(unset, elements...)
			} else {
				expected = append(expected, value)
				unset = append(unset, gocql.UnsetValue)
			}
		}
		same(seen, expected)
		for _, id := range []int{10 + row, 12} {
			write(id, expected)
			_, seen = read(id)
			same(seen, expected)
		}
	}
	write(12, unset)
	_, seen := read(12)
	same(seen, expected)
	nulls := make([]any, len(expected))
	cleared := make([]any, len(expected))
	for i, value := range expected {
		// The driver cannot bind null to a user type.
		if _, isUserType := value.(map[string]any); isUserType {
			nulls[i], cleared[i] = gocql.UnsetValue, value
		}
	}
	write(12, nulls)
	_, seen = read(12)
	same(seen, cleared)
}

// same checks what was scanned into pointers.
func same(pointers []any, expected []any) {
	check(len(pointers), len(expected))
	for i, pointer := range pointers {
		seen := reflect.ValueOf(pointer).Elem().Interface()
		if !equal(seen, expected[i]) {
			log.Output(3, fmt.Sprintf("value %d: expected %#v, got %#v", i, expected[i], seen))
			os.Exit(1)
		}
	}
}

func pages(session *gocql.Session) {
	ok(session.Query("CREATE TABLE shop.readings (device text, at int, note text, PRIMARY KEY (device, at)) " +
		"WITH CLUSTERING ORDER BY (at DESC)").Exec())
	insert := "INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)"
	for first := 0; first < 1000; first += 100 {
		batch := session.Batch(gocql.UnloggedBatch)
		for at := first; at < first+100; at++ {
			batch.Query(insert, "clock", at, fmt.Sprint("note ", at))
		}
		ok(batch.Exec())
	}
	var state []byte
	next, fetched := 999, 0
	for {
		iter := session.Query("SELECT at, note FROM shop.readings WHERE device = ?", "clock").
			PageSize(100).PageState(state).Iter()
		state = iter.PageState()
		fetched++
		var at int
		var note string
		for iter.Scan(&at, &note) {
			check(at, next)
			check(note, fmt.Sprint("note ", at))
			next--
		}
		ok(iter.Close())
		if len(state) == 0 {
			break
		}
	}
	check(next, -1)
	check(fetched == 10 || fetched == 11, true)
}

func batches(session *gocql.Session) {
	ok(session.Query("CREATE TABLE shop.hits (page text PRIMARY KEY, hits counter)").Exec())
	insert := "INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)"
	ok(session.Batch(gocql.LoggedBatch).
		Query(insert, "one", 1, "a").
		Query(insert, "two", 2, nil).
		Query("INSERT INTO shop.readings (device, at) VALUES ('three', 3)").Exec())
	notes := map[string]*string{}
	scanner := session.Query(
		"SELECT device, note FROM shop.readings WHERE device IN ('one', 'two', 'three')").Iter().Scanner()
	for scanner.Next() {
		var device string
		var note *string
		ok(scanner.Scan(&device, &note))
		notes[device] = note
	}
	ok(scanner.Err())
	a := "a"
	check(notes, map[string]*string{"one": &a, "two": nil, "three": nil})

	count := "UPDATE shop.hits SET hits = hits + ? WHERE page = ?"
	ok(session.Batch(gocql.CounterBatch).Query(count, 5, "a").Query(count, -7, "b").Exec())
	hits := map[string]int64{}
	iter := session.Query("SELECT page, hits FROM shop.hits").Iter()
	var page string
	var number int64
	for iter.Scan(&page, &number) {
		hits[page] = number
	}
	ok(iter.Close())
	check(hits, map[string]int64{"a": 5, "b": -7})
}

func conditions(session *gocql.Session) {
	ok(session.Query("CREATE TABLE shop.locks (name text PRIMARY KEY, owner int)").Exec())
	change := func(statement string, values ...any) (bool, map[string]any) {
		found := map[string]any{}
		applied, err := session.Query(statement, values...).MapScanCAS(found)
		ok(err)
		return applied, found
	}
	take := "INSERT INTO shop.locks (name, owner) VALUES (?, ?) IF NOT EXISTS"
	applied, _ := change(take, "door", 1)
	check(applied, true)
	applied, found := change(take, "door", 2)
	check(applied, false)
	check(found, map[string]any{"name": "door", "owner": 1})
	give := "UPDATE shop.locks SET owner = ? WHERE name = ? IF owner = ?"
	applied, found = change(give, 3, "door", 2)
	check(applied, false)
	check(found, map[string]any{"owner": 1})
	applied, _ = change(give, 3, "door", 1)
	check(applied, true)
	check(owner(session), 3)
}

func owner(session *gocql.Session) int {
	var owner int
	if err := session.Query("SELECT owner FROM shop.locks WHERE name = ?", "door").Scan(&owner); err != nil {
		return -1
	}
	return owner
}

func metadata(session *gocql.Session, columns []Column) {
	var shop *gocql.KeyspaceMetadata
	// The driver waits a second before it reads changes, also its own.
	until("the last table", func() (found bool) {
		var err error
		shop, err = session.KeyspaceMetadata("shop")
		ok(err)
		return shop.Tables["locks"] != nil
	})
	kinds := shop.Tables["kinds"]
	check(len(kinds.Columns), 1+len(columns))
	for _, column := range columns {
		check(kinds.Columns[column.Name].Validator, column.Type)
	}
	check(shop.UserTypes["place"].FieldNames, []string{"street", "number"})
	readings := shop.Tables["readings"]
	check(readings.PartitionKey[0].Name, "device")
	check(readings.ClusteringColumns[0].Name, "at")
	check(readings.ClusteringColumns[0].Order, gocql.DESC)
}

func events(session *gocql.Session, name string) {
	table := func() *gocql.TableMetadata {
		shop, err := session.KeyspaceMetadata("shop")
		ok(err)
		return shop.Tables[name]
	}
	// The driver reads the keyspace again after an event only.
	check(table() == nil, true)
	ask("CREATE TABLE shop." + name + " (id int PRIMARY KEY)")
	until("a created table", func() bool { return table() != nil })
	ask("ALTER TABLE shop." + name + " ADD note text")
	until("an added column", func() bool { return table().Columns["note"] != nil })
	ask("DROP TABLE shop." + name)
	until("a dropped table", func() bool { return table() == nil })
}

func restart(session *gocql.Session) {
	check(owner(session), 3)
	ask("restart")
	until("a connection", func() bool { return owner(session) == 3 })
}

// ask asks the test to restart the server, or to run a statement as another client.
func ask(request string) {
	fmt.Println(request)
	check(input.Scan(), true)
	check(input.Text(), "done")
}

// until repeats an attempt until it returns true.
func until(purpose string, attempt func() bool) {
	for deadline := time.Now().Add(patience); !attempt(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			log.Fatal(purpose)
		}
	}
}

func ok(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func check(seen, expected any) {
	if !reflect.DeepEqual(seen, expected) {
		log.Output(2, fmt.Sprintf("expected %#v, got %#v", expected, seen))
		os.Exit(1)
	}
}
