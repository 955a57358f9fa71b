-- Arrays: subscripts, nulls within, texts, functions that return rows.
SELECT (ARRAY[1, 2, 3])[-1], (ARRAY[1, 2, 3])[0], (ARRAY[1, 2, 3])[3], (ARRAY[1, 2, 3])[4], (ARRAY[1, 2, 3])[NULL]
SELECT id, (ARRAY[7, 8])[id - 2] FROM shop.r2 ORDER BY id
SELECT (ARRAY[1, 2, 3])[2:], (ARRAY[1, 2, 3])[:2], (ARRAY[1, 2, 3])[-1:1], (ARRAY[1, 2, 3])[2:9]
SELECT (ARRAY[1, 2, 3])[-2:-1], (ARRAY[1, 2, 3])[2:1], (ARRAY[1, 2, 3])[1:NULL], (ARRAY[1, 2, 3])[1:0]
SELECT id, (ARRAY[7, 8, 9])[id - 2:id] FROM shop.r2 ORDER BY id
-- refused 0A000: arrays
SELECT (ARRAY[[1, 2], [3, 4]])[1]
-- refused 0A000: arrays
SELECT (ARRAY[[1, 2], [3, 4]])[1][2]
SELECT array_dims(ARRAY[1, 2]), array_dims(ARRAY[]::int[]), array_dims(NULL::int[]), array_dims(ARRAY[[1, 2], [3, 4]])
SELECT array_ndims(ARRAY[1]), array_ndims(ARRAY[]::int[]), array_ndims(ARRAY[[1], [2]])
SELECT array_remove(ARRAY[1, NULL, 2, 1], 1), array_remove(ARRAY[1, NULL], NULL), array_remove(NULL::int[], 1)
SELECT array_replace(ARRAY[1, 2, 1], 1, 9), array_replace(ARRAY[1, NULL, NULL], NULL, 9), array_replace(ARRAY[1, 1], 1, NULL)
SELECT array_cat(ARRAY[1], ARRAY[2]), array_cat(NULL, ARRAY[2]), array_cat(ARRAY[1], NULL)
SELECT array_to_string(ARRAY[true, false], ','), array_to_string(ARRAY[1.5::float8, 1e20], ','), array_to_string(ARRAY[1, NULL, 3], ',', '*')
SELECT array_to_string(ARRAY[date '2024-01-31'], ','), array_to_string(ARRAY[timestamp '2024-01-31 10:00'], ',')
SELECT ARRAY[1, 2] @> ARRAY[1], ARRAY[1] <@ ARRAY[1, 2], ARRAY[1, 2] && ARRAY[2, 3], ARRAY[1] && ARRAY[2]
SELECT ARRAY[1, NULL] @> ARRAY[NULL]::int[], ARRAY[1, NULL] && ARRAY[NULL]::int[], ARRAY[1] @> ARRAY[]::int[], NULL::int[] @> ARRAY[1]
SELECT id FROM shop.r2 WHERE ARRAY[id, k] @> '{2}' ORDER BY id
SELECT ARRAY[1, NULL] < ARRAY[1, 2], ARRAY[1, NULL] > ARRAY[1, 2], ARRAY[1] < ARRAY[1, NULL], ARRAY[1, NULL] = ARRAY[1, NULL]
SELECT ARRAY[1, 2] BETWEEN ARRAY[1] AND ARRAY[1, NULL], ARRAY[2] NOT BETWEEN ARRAY[1] AND ARRAY[1, NULL]
-- refused 42883: arrays
SELECT ARRAY[1, 2] = '{1,2}'
SELECT id FROM shop.r2 WHERE ARRAY[id, k] = '{2,2}' OR ARRAY[id] IN ('{1}', '{1,2}') ORDER BY id
SELECT x FROM (VALUES (ARRAY[1, NULL]), (ARRAY[1, 2]), (ARRAY[1])) t(x) ORDER BY x
SELECT x FROM (VALUES ('{1,NULL}'::int[]), ('{1,2}'::int[]), ('{NULL,1}'::int[]), ('{NULL,NULL}'::int[])) t(x) ORDER BY x DESC LIMIT 2
SELECT x, rank() OVER (ORDER BY x) FROM (VALUES ('{1,NULL}'::int[]), ('{1,2}'::int[]), ('{NULL}'::int[]), ('{1,2}'::int[])) t(x) ORDER BY x
SELECT max(x), min(x) FROM (VALUES (ARRAY[1, NULL]), (ARRAY[1, 2]), (ARRAY[1])) t(x)
-- refused 0A000: arrays
SELECT greatest(ARRAY[1, NULL], ARRAY[1, 2])
SELECT 1 <> ANY (ARRAY[1, NULL]), 1 < ANY (ARRAY[1, NULL]), 1 < ANY (ARRAY[2, NULL]), 1 = ANY (ARRAY[1, NULL]), 2 = ANY (ARRAY[1, NULL])
SELECT 1 < ALL (ARRAY[2, NULL]), 3 < ALL (ARRAY[2, NULL]), 1 <> ALL (ARRAY[1, NULL]), 1 = ALL (ARRAY[1, 1]), 1 = ALL (ARRAY[]::int[]), 1 = ANY (ARRAY[]::int[])
SELECT 1 = ANY ('{1,2}'), 'b c' = ANY ('{a,"b c"}'), 3 <> ALL ('{1,2}'), 1 = ANY (NULL::int[]), 1 = ANY ('{}'), 3 = ANY ('{1,NULL}')
SELECT 1 = ANY ('{1')
SELECT '{1,2}'::int[], '{}'::int[], '{a,"b c",NULL,"NULL"}'::text[], '{"a","b"}'::text[], '{""}'::text[], '{a\,b}'::text[]
SELECT '{2024-01-01}'::date[], '{t,f}'::bool[], '{1.5,NaN}'::float8[], '{"1 day"}'::interval[], ' { 1 , 2 } '::int[]
SELECT '{1.55,2}'::numeric(3,1)[], ARRAY[1.25]::numeric[], ARRAY[1]::numeric[]
SELECT '{0.123456789012345}'::numeric[]
SELECT '{1,2'::int[]
SELECT '{}}'::int[]
SELECT '{a"b"}'::text[]
SELECT '{1,x}'::int[]
-- refused 0A000: arrays
SELECT '{{1,2},{3,4}}'::int[]
-- refused 0A000: arrays
SELECT '{abc}'::varchar(2)[]
-- refused 42883: arrays
SELECT coalesce(ARRAY[1], '{}')
SELECT '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'::uuid[]::text[], ARRAY['A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11']::uuid[]::text[]
SELECT '{x}'::uuid[]
SELECT ARRAY['x']::uuid[]
SELECT '{"{"}'::json[]
SELECT '{x}'::inet[]
SELECT uuid 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', json '{"a":1}'
SELECT uuid 'x'
SELECT array_agg(DISTINCT x) FROM (VALUES (3), (NULL), (1), (3), (2)) t(x)
SELECT string_agg(DISTINCT x, ',') FROM (VALUES ('c'), ('a'), ('c'), ('b')) t(x)
SELECT u FROM unnest(ARRAY[1, 2]) u ORDER BY 1
SELECT unnest FROM unnest(ARRAY[1, 2]) ORDER BY 1
-- differs generate_series
-- gives: = g int8 ; > 1 ; > 2 ; > 3
SELECT g FROM generate_series(1, 3) g ORDER BY g.g
-- differs generate_series
-- gives: = id int4|generate_series int8 ; > 1|1 ; > 2|1 ; > 2|2
SELECT id, generate_series(1, k) FROM shop.r2 ORDER BY 1, 2
-- differs generate_series
-- gives: = a int8|b int8 ; > 1|5 ; > 2|6 ; > 3|\N
SELECT generate_series(1, 3) AS a, generate_series(5, 6) AS b
SELECT count(*) FROM (SELECT generate_series(1, 100)) q
SELECT count(*) FROM (SELECT generate_series(3, 1)) q
SELECT generate_series(timestamp '2024-01-31', timestamp '2024-04-01', interval '1 month') AS t
-- refused 0A000: series
SELECT generate_series(date '2024-01-01', date '2024-01-03', interval '1 day')
-- refused 0A000: series
SELECT x FROM generate_series(date '2024-01-01', date '2024-01-03', interval '1 day') g(x)
-- refused 42883: series
SELECT generate_series(1.5, 3)
-- refused 42883: series
SELECT r.id, g FROM shop.r2 r, generate_series(1, r.id) g
-- refused 42703: series
SELECT r.id, x FROM shop.r2 r, unnest(ARRAY[r.id]) u(x)
