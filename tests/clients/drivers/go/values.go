package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"net"
	"reflect"
	"strconv"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"gopkg.in/inf.v0"
)

// native returns a value of the table as the driver binds it to a type.
func native(info gocql.TypeInfo, value any) any {
	if value == nil {
		return nil
	}
	switch info.Type() {
	case gocql.TypeList, gocql.TypeSet:
		items := []any{}
		for _, item := range value.([]any) {
			items = append(items, native(info.(gocql.CollectionType).Elem, item))
		}
		return items
	case gocql.TypeMap:
		entries := map[any]any{}
		for _, entry := range value.([]any) {
			pair := entry.([]any)
			types := info.(gocql.CollectionType)
			entries[native(types.Key, pair[0])] = native(types.Elem, pair[1])
		}
		return entries
	case gocql.TypeTuple:
		elements := []any{}
		for i, element := range value.([]any) {
			elements = append(elements, native(info.(gocql.TupleTypeInfo).Elems[i], element))
		}
		return elements
	case gocql.TypeUDT:
		fields := map[string]any{}
		for i, field := range info.(gocql.UDTTypeInfo).Elements {
			fields[field.Name] = native(field.Type, value.([]any)[i])
		}
		return fields
	}
	return scalar(info.Type(), value)
}

func scalar(kind gocql.Type, value any) any {
	switch kind {
	case gocql.TypeBoolean:
		return value
	case gocql.TypeFloat:
		return float32(float(value))
	case gocql.TypeDouble:
		return float(value)
	case gocql.TypeDuration:
		parts := value.([]any)
		return gocql.Duration{Months: int32(whole(parts[0])), Days: int32(whole(parts[1])), Nanoseconds: whole(parts[2])}
	case gocql.TypeBigInt:
		return whole(value)
	case gocql.TypeInt:
		return int(whole(value))
	case gocql.TypeSmallInt:
		return int16(whole(value))
	case gocql.TypeTinyInt:
		return int8(whole(value))
	case gocql.TypeDate:
		return time.Unix(whole(value)*86400, 0).UTC()
	case gocql.TypeTime:
		return time.Duration(whole(value))
	case gocql.TypeTimestamp:
		return time.UnixMilli(whole(value)).UTC()
	}
	text := value.(string)
	switch kind {
	case gocql.TypeBlob:
		blob, err := hex.DecodeString(text)
		ok(err)
		return blob
	case gocql.TypeDecimal:
		decimal, _ := new(inf.Dec).SetString(text)
		return decimal
	case gocql.TypeVarint:
		varint, _ := new(big.Int).SetString(text, 10)
		return varint
	case gocql.TypeInet:
		return net.ParseIP(text)
	case gocql.TypeUUID, gocql.TypeTimeUUID:
		uuid, err := gocql.ParseUUID(text)
		ok(err)
		return uuid
	}
	return text
}

func whole(value any) int64 {
	text, isText := value.(string)
	if !isText {
		text = value.(json.Number).String()
	}
	number, err := strconv.ParseInt(text, 10, 64)
	ok(err)
	return number
}

func float(value any) float64 {
	number, err := value.(json.Number).Float64()
	ok(err)
	return number
}

// equal compares a scanned value with one that was bound. The driver scans null as the zero value, and collections as slices and
// maps of the types of their elements.
func equal(seen, expected any) bool {
	value := reflect.ValueOf(seen)
	switch expected := expected.(type) {
	case nil:
		return seen == nil || value.IsZero()
	case []byte:
		return bytes.Equal(seen.([]byte), expected)
	case net.IP:
		address, isText := seen.(string)
		return isText && address == expected.String() || !isText && expected.Equal(seen.(net.IP))
	case time.Time:
		return expected.Equal(seen.(time.Time))
	case *inf.Dec:
		return seen.(*inf.Dec).String() == expected.String()
	case []any:
		if value.Kind() != reflect.Slice || value.Len() != len(expected) {
			return false
		}
		for i := range expected {
			if !equal(value.Index(i).Interface(), expected[i]) {
				return false
			}
		}
		return true
	case map[any]any:
		return equalMaps(value, reflect.ValueOf(expected))
	case map[string]any:
		return equalMaps(value, reflect.ValueOf(expected))
	}
	return reflect.DeepEqual(seen, expected)
}

func equalMaps(seen, expected reflect.Value) bool {
	if seen.Kind() != reflect.Map || seen.Len() != expected.Len() {
		return false
	}
	for _, key := range expected.MapKeys() {
		found := seen.MapIndex(reflect.ValueOf(key.Interface()))
		if !found.IsValid() || !equal(found.Interface(), expected.MapIndex(key).Interface()) {
			return false
		}
	}
	return true
}
