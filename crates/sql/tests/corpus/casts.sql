-- Casts, and what they refuse.
SELECT '12'::int, ' 12 '::int, '-12'::int, '+12'::int, '012'::int
SELECT ''::int
SELECT 'abc'::int
SELECT '1.5'::int
SELECT '12abc'::int
SELECT '99999999999'::int
SELECT '-99999999999'::int
SELECT '9223372036854775808'::bigint
SELECT '40000'::smallint
SELECT '1 2'::int
SELECT 300::smallint, 32767::smallint
SELECT 40000::smallint
SELECT 3000000000::int
SELECT 9223372036854775807::int
SELECT 3000000000::bigint::int
SELECT (-2147483649)::int
SELECT CAST('12' AS bigint), CAST(12 AS text), CAST(12 AS numeric), CAST(12 AS float8)
SELECT true::text, false::text, true::int, false::int, 1::boolean, 0::boolean, 5::boolean
SELECT true, false, NULL::boolean
SELECT 't'::boolean, 'true'::boolean, 'yes'::boolean, 'on'::boolean, '1'::boolean, 'y'::boolean, 'TRUE'::boolean, 'tr'::boolean
SELECT 'f'::boolean, 'false'::boolean, 'no'::boolean, 'off'::boolean, '0'::boolean, 'n'::boolean, 'of'::boolean
SELECT ' true '::boolean
SELECT 'maybe'::boolean
SELECT 'o'::boolean
SELECT ''::boolean
SELECT true::bigint
SELECT 1.5::boolean
-- refused 22007: dates
SELECT '2024-01-31'::date, '2024-1-5'::date, '20240131'::date, 'January 8, 1999'::date
SELECT '2024-02-30'::date
SELECT '2024-13-01'::date
SELECT 'abc'::date
SELECT ''::date
SELECT '2024-01-31 10:20:30'::timestamp, '2024-01-31'::timestamp, '2024-01-31T10:20:30'::timestamp
SELECT '2024-01-31 10:20:30.123456'::timestamp, '2024-01-31 10:20:30.1234567'::timestamp, '2024-01-31 10:20'::timestamp
SELECT '2024-01-31 25:00:00'::timestamp
SELECT '2024-01-31 10:20:30+02'::timestamptz, '2024-01-31 10:20:30Z'::timestamptz, '2024-01-31 10:20:30'::timestamptz
SELECT '2024-01-31 10:20:30+02'::timestamp
SELECT 'nonsense'::timestamp
-- refused 22008: dates
SELECT '10:20:30'::time, '10:20'::time, '10:20:30.5'::time, '24:00:00'::time
SELECT '25:00:00'::time
SELECT '2024-01-31 10:20:30'::timestamp::date, '2024-01-31'::date::timestamp
SELECT '2024-01-31 10:20:30'::timestamp::text, '2024-01-31'::date::text, '10:20:30'::time::text
SELECT '2024-01-31 10:20:30'::timestamp::time
SELECT '2024-01-31 10:20:30.5'::timestamp::text
SELECT '2024-01-31 10:20:30+00'::timestamptz::text
SELECT '1 day'::interval, '1 day'::interval::text, '02:03:04'::interval
SELECT 'x'::interval
SELECT '{1,2,3}'::int[], '{}'::int[], '{a,b}'::text[]
SELECT ARRAY[1, 2]::text[], ARRAY['1', '2']::int[]
SELECT ARRAY[1.5, 2.5]::int[]
SELECT ARRAY['a']::int[]
SELECT ARRAY[1, 2, 3], ARRAY['a', 'b c', 'd"e', NULL, ''], ARRAY[true, false]
SELECT ARRAY['NULL', 'null', 'a,b', '{x}', 'a\b', ' ']
SELECT ARRAY[]::int[]
SELECT ARRAY[1, 2, 3]::text
SELECT ROW(1, 'a', NULL, true, 1.50)
SELECT ROW('a,b', 'c"d', '', ' ', '(x)')
-- differs decimals
-- gives: = array _numeric|array _date ; > {1.50,2.50}|{2024-01-01}
SELECT ARRAY[1.50, 2.5], ARRAY['2024-01-01'::date]
SELECT ARRAY['2024-01-31 10:20:30'::timestamp]
-- differs nested arrays
-- gives: = array json ; > [[1,2],[3,4]]
SELECT ARRAY[ARRAY[1, 2], ARRAY[3, 4]]
SELECT '00000000-0000-0000-0000-000000000001'::uuid::text
SELECT NULL::int, NULL::text, NULL::date
SELECT 1::text || 2::text
-- refused 42883: constants
SELECT '5' + 1, 1 + '5'
SELECT '5' > 3, 10 > '9'
-- refused 42883: constants
SELECT 'a' + 1
SELECT 1 = '1', '1' = '01'
SELECT int '5', date '2024-01-01', timestamp '2024-01-01 00:00:00', interval '1 day', text 'a'
-- differs oid
-- gives: = bpchar text ; > 65
SELECT 65::"char"
-- differs oid
-- gives: = oid int4 ; > 1
SELECT 1::oid
-- refused 0A000: types
SELECT '1'::money
SELECT x::int FROM (VALUES ('1'), ('2')) AS v(x) ORDER BY 1
SELECT x::int FROM (VALUES ('1'), ('x')) AS v(x)
SELECT qty::smallint FROM shop.items WHERE id = 5
SELECT qty::smallint FROM shop.items WHERE id = 1
SELECT big::int FROM shop.items WHERE id = 1
SELECT big::int FROM shop.items WHERE id = 2
SELECT ratio::int FROM shop.items WHERE id = 3
SELECT name::int FROM shop.items WHERE id = 1
SELECT sold::text, sold::int FROM shop.items WHERE id < 3 ORDER BY id
SELECT sold FROM shop.items ORDER BY id
SELECT at::text, day::text FROM shop.items WHERE id = 1
SELECT id FROM shop.items WHERE day = '2024-02-29'
SELECT id FROM shop.items WHERE at > '2024-03-01' ORDER BY id
SELECT id FROM shop.items WHERE qty = '10' ORDER BY id
-- refused 22000: formats
SELECT to_date('2024-01-31', 'YYYY-MM-DD')
SELECT to_timestamp(0), to_timestamp(1.5)
-- refused 42883: functions
SELECT pg_typeof(1), pg_typeof('a'), pg_typeof(1.5)
SELECT 'abc'::name
SELECT '{"a": 1}'::json
