-- Floating point: text form, division, infinities.
SELECT 2.0::float8
SELECT 1e20::float8
SELECT 1e15::float8, 1e16::float8, 123456789012345680::float8
SELECT 0.1::float8, 0.0001::float8, 0.00001::float8
SELECT 1e-7::float8
SELECT 1e300::float8
SELECT 1.5::float8, -1.5::float8, 0::float8, '-0'::float8
SELECT 0.1::float8 + 0.2::float8
SELECT 1::float8 / 3
SELECT 1::real / 3
SELECT 0.1::real, 1e10::real, 16777216::real, 1e6::real, 1e5::real
SELECT 0.1::real::float8
SELECT 3.4e38::real
SELECT 'NaN'::float8, 'Infinity'::float8, '-Infinity'::float8
SELECT 'inf'::float8, '-inf'::float8, 'nan'::float8
SELECT 'NaN'::float8 = 'NaN'::float8, 'NaN'::float8 > 'Infinity'::float8
SELECT 1::float8 / 0
SELECT 0::float8 / 0::float8
SELECT 1e308::float8 * 10
SELECT 1e308::float8 + 1e308::float8
SELECT 1e-308::float8 / 1e10::float8
SELECT 1e-200::float8 * 1e-200::float8
SELECT 'Infinity'::float8 + 1, 'Infinity'::float8 - 'Infinity'::float8
SELECT '1e400'::float8
SELECT 'abc'::float8
SELECT ' 1.5 '::float8
SELECT 1e40::float8::real
SELECT 1e10::float8::int
SELECT 1e19::float8::bigint
SELECT 'NaN'::float8::int
SELECT 2::float8::text, 1e20::float8::text, 0.5::float8::text, 1e-5::float8::text
SELECT 2::real::text, 0.1::real::text
SELECT ARRAY[1.0::float8, 2.5::float8, 1e20::float8]
SELECT ARRAY[1::real, 0.1::real]
SELECT ROW(1.0::float8, 2)
SELECT ROW(1e20::float8, 'a b', NULL)
SELECT 'x' || 2.0::float8
SELECT concat('x', 2.0::float8, 1e20::float8)
SELECT array_to_string(ARRAY[1.0::float8, 2.5::float8], ',')
SELECT ratio FROM shop.items ORDER BY id
SELECT weight FROM shop.items ORDER BY id
SELECT ratio * 2 FROM shop.items WHERE id IN (1, 2, 3, 4) ORDER BY id
SELECT 1 / ratio FROM shop.items WHERE id = 2
SELECT weight / 0 FROM shop.items WHERE id = 1
SELECT sum(ratio), avg(ratio) FROM shop.items WHERE id IN (1, 2, 6)
SELECT min(ratio), max(ratio) FROM shop.items
SELECT min(weight), max(weight) FROM shop.items
SELECT ratio + price FROM shop.items WHERE id = 1
SELECT ratio + qty FROM shop.items WHERE id = 1
SELECT weight + ratio FROM shop.items WHERE id = 1
SELECT weight * 2 FROM shop.items WHERE id = 1
SELECT array_agg(ratio ORDER BY id) FROM shop.items WHERE id < 5
SELECT sin(0::float8), cos(0::float8), tan(0::float8), atan2(0::float8, 1::float8)
SELECT pi()
SELECT degrees(pi()), radians(180::float8)
SELECT ratio::text FROM shop.items WHERE id IN (2, 3) ORDER BY id
SELECT ratio::int FROM shop.items WHERE id = 1
-- differs numeric of floating point
-- gives: = ratio numeric ; > 0.500000000000000000
SELECT ratio::numeric FROM shop.items WHERE id = 1
-- differs statistics
-- gives: = stddev float8|variance float8 ; > 1.5275252316519465|2.333333333333333
SELECT stddev(x), variance(x) FROM (VALUES (1::float8), (2), (4)) AS v(x)
SELECT stddev_pop(x), var_pop(x) FROM (VALUES (1::float8), (3)) AS v(x)
SELECT corr(x, y), covar_pop(x, y), covar_samp(x, y) FROM (VALUES (1::float8, 2::float8), (2, 4), (3, 6)) AS v(x, y)
SELECT regr_slope(y, x), regr_intercept(y, x), regr_count(y, x) FROM (VALUES (1::float8, 2::float8), (2, 4)) AS v(x, y)
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM (VALUES (1::float8), (2), (4), (8)) AS v(x)
-- NaN in groups.
SELECT g, min(f), max(f) FROM (VALUES (1, 'NaN'::float8), (1, 1), (1, 2), (2, 3), (2, 'NaN'), (3, 'NaN'), (4, NULL)) t(g, f) GROUP BY g ORDER BY g
SELECT g, min(f), max(f) FROM (VALUES (1, 'NaN'::float4), (1, 1), (2, 'Infinity'), (2, 'NaN'), (3, '-Infinity')) t(g, f) GROUP BY g ORDER BY g
SELECT g, max(f) FROM (VALUES (1, 'NaN'::float8), (1, 1), (2, 3)) t(g, f) GROUP BY g ORDER BY max(f) DESC LIMIT 1
SELECT sign('NaN'::float8), sign('-0'::float8)
