-- Numbers with decimals: scale of constants and results, rounding, quotients.
SELECT 1.50
SELECT 0.06 + 0.01
SELECT 0.1 + 0.2
SELECT 1.5 * 1.5
SELECT 1.10 - 1.1
SELECT 1.0
SELECT 100.00
SELECT -1.50
SELECT .5
SELECT 5.
SELECT 1e3, 1.5e2, 1e-3
SELECT 0.1 + 0.2 = 0.3
SELECT 2 * 1.5, 1.5 * 2
SELECT 1 + 0.5, 0.5 + 1
SELECT 1.5 + 1::bigint, 1.5 + 1::smallint
SELECT 7.0 / 2
SELECT 7 / 2.0
-- differs quotient
-- gives: = ?column? numeric ; > 0.3333333333333333
SELECT 1 / 3.0
-- differs quotient
-- gives: = ?column? numeric ; > 0.6666666666666667
SELECT 2 / 3.0
SELECT 10 / 3.0
-- differs quotient
-- gives: = ?column? numeric ; > 33333.3333333333333333
SELECT 100000 / 3.0
-- differs quotient
-- gives: = ?column? numeric ; > 0.2500000000000000
SELECT 1.00 / 4
SELECT 5.5 / 1.1
-- differs quotient
-- gives: = ?column? numeric ; > -0.3333333333333333
SELECT -1 / 3.0
SELECT 1.0 / 0
SELECT 1 / 0.0
SELECT 5.5 % 2
SELECT -5.5 % 2
SELECT mod(5.5, 2)
SELECT 5.5 % 0
SELECT round(2.5), round(-2.5), round(3.5), round(0.5)
SELECT round(2.5::float8), round(-2.5::float8), round(3.5::float8), round(0.5::float8)
SELECT round(1.005, 2), round(1.995, 2), round(1234.567, -2)
SELECT round(2.345, 1), round(2.355, 2)
SELECT round(5, 1)
SELECT round(5)
SELECT round(2.5::float8, 1)
SELECT trunc(2.7), trunc(-2.7), trunc(2.789, 2)
SELECT trunc(2.7::float8), trunc(-2.7::float8)
SELECT ceil(2.1), ceil(-2.1), floor(2.9), floor(-2.9)
SELECT ceil(2.0), floor(2)
SELECT abs(-1.50), sign(-1.5)
SELECT 1.5::int, 2.5::int, -1.5::int, (-2.5)::int
SELECT 1.5::float8::int, 2.5::float8::int, (-2.5)::float8::int, 3.5::float8::int
SELECT 1.4999::int, 1.5::bigint, 2.5::smallint
SELECT 99999999999.5::int
SELECT 40000.0::smallint
SELECT 1e20::bigint
SELECT 1.239::numeric(5, 2), 1.235::numeric(5, 2), (-1.235)::numeric(5, 2)
SELECT 1234.5::numeric(5, 2)
SELECT 1::numeric(5, 2)
SELECT 1.5::numeric
SELECT '1.50'::numeric
SELECT '  1.50 '::numeric
SELECT '1.5x'::numeric
SELECT ''::numeric
SELECT 1.23456789::numeric(10, 4)
SELECT 5::numeric
SELECT 5::numeric / 2
-- differs numeric of floating point
-- gives: = numeric numeric ; > 1.100000000000000000
SELECT 1.1::float8::numeric
SELECT 0.1::float8::numeric(10, 5)
SELECT 1.5::text, 1.50::text, 100::numeric::text
SELECT 1.5 = 1.50, 1.5 < 1.51, 2.0 > 1
-- differs decimals
-- gives: = greatest numeric|least numeric ; > 2.0|0.5
SELECT greatest(1.5, 2, 0.5), least(1, 0.5)
SELECT coalesce(NULL, 1.5, 2)
-- differs decimals
-- gives: = case numeric ; > 1.0
SELECT CASE WHEN true THEN 1 ELSE 2.5 END
-- differs double
-- gives: = sqrt float8 ; > 1.4142135623730951
SELECT sqrt(2.0)
-- differs double
-- gives: = exp float8 ; > 2.718281828459045
SELECT exp(1.0)
-- differs double
-- gives: = ln float8 ; > 0.6931471805599453
SELECT ln(2.0)
-- differs double
-- gives: = log float8 ; > 2
SELECT log(100.0)
-- differs double
-- gives: = power float8 ; > 8
SELECT power(2.0, 3)
-- differs double
-- gives: = power float8 ; > 6.25
SELECT power(2.5, 2)
SELECT 0.000001 * 0.000001
SELECT 123456789012345678.123456789 * 10
SELECT 99999999999999999999 + 1
SELECT 12345678901234567890.5 + 1
-- refused 22P02: nan
SELECT 'NaN'::numeric
SELECT 1.10 AS a, 1.1 AS b
-- differs decimals
-- gives: = x numeric ; > 1.50 ; > 2.25 ; > 3.00
SELECT x FROM (VALUES (1.5), (2.25), (3)) AS v(x) ORDER BY x
-- differs decimals
-- gives: = x numeric ; > 1.00 ; > 2.50
SELECT x FROM (VALUES (1), (2.50)) AS v(x) ORDER BY x
SELECT sum(x) FROM (VALUES (1.5), (2.25), (3)) AS v(x)
SELECT avg(x) FROM (VALUES (1.5), (2.5)) AS v(x)
SELECT min(x), max(x) FROM (VALUES (1.5), (2.5)) AS v(x)
SELECT price FROM shop.items WHERE id = 1
SELECT price * 2 FROM shop.items WHERE id = 1
SELECT price + 0.000001 FROM shop.items WHERE id = 4
SELECT price * qty FROM shop.items WHERE id = 2
-- differs quotient
-- gives: = ?column? numeric ; > 1.2500000000000000
SELECT price / 2 FROM shop.items WHERE id = 2
SELECT sum(price), min(price), max(price) FROM shop.items
SELECT sum(price * qty) FROM shop.items WHERE id < 5
SELECT round(price, 1) FROM shop.items WHERE id = 1
SELECT price::int FROM shop.items WHERE id IN (1, 2, 4) ORDER BY id
SELECT id FROM shop.items WHERE price = 1.25
SELECT id FROM shop.items WHERE price > 1.2 AND price < 2.6 ORDER BY id
SELECT price / 0 FROM shop.items WHERE id = 1
SELECT price / qty FROM shop.items WHERE id = 3
-- refused 42883: functions
SELECT scale(1.50), scale(5.0)
-- refused 42883: functions
SELECT trim_scale(1.500)
-- refused 42883: formats
SELECT to_char(1234.5, '9999.99')
