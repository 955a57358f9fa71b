//! Calls of resolved functions.

use schema::token::{compose_partition_key, token};
use schema::value::{max_timeuuid, min_timeuuid};

use crate::function::Body;
use crate::{Context, Function, FunctionError};
use crate::{arithmetic, blob, cast, collection, json, mask, math, time, vector};

impl Function {
    /// Calls the function with one value per argument.
    ///
    /// # Errors
    /// Returns Cassandra's texts. A division by zero is `Failed`. A refused value is `Invalid`.
    pub fn call(
        &self,
        arguments: &[Option<&[u8]>],
        context: &dyn Context,
    ) -> Result<Option<Vec<u8>>, FunctionError> {
        match self.body {
            Body::Now => return Ok(Some(time::now(&self.result, context))),
            Body::Uuid => return Ok(Some(context.random_uuid().to_vec())),
            Body::MaskNull => return Ok(None),
            Body::MaskDefault => return Ok(mask::default(&self.arguments[0])),
            Body::MaskReplace => return Ok(arguments.get(1).copied().flatten().map(<[u8]>::to_vec)),
            Body::MaskPart(inner) => return mask::part(self, inner, arguments),
            Body::MaskHash => return mask::hash(arguments),
            Body::ToJson => return json::to_json(&self.arguments[0], arguments.first().copied().flatten()),
            _ => {}
        }
        // The other functions return null if an argument is null.
        let Some(values) = arguments.iter().copied().collect::<Option<Vec<&[u8]>>>() else {
            return Ok(None);
        };
        match (self.body, &values[..]) {
            (Body::Arithmetic(op), [left, right]) => arithmetic::numbers(self, op, left, right),
            (Body::Concatenate, [left, right]) => Ok(Some([*left, *right].concat())),
            (Body::Shift(op), [temporal, duration]) => time::shift(self, op, temporal, duration),
            (Body::Floor, [value, duration, ..]) => {
                time::floor(self, value, duration, values.get(2).copied())
            }
            (Body::Similarity(of), [left, right]) => vector::similarity(of, &self.name, left, right),
            (Body::Token, _) => partition_token(&values),
            (body, [value]) => self.call_unary(body, value),
            _ => Ok(None),
        }
    }

    fn call_unary(&self, body: Body, value: &[u8]) -> Result<Option<Vec<u8>>, FunctionError> {
        let ty = &self.arguments[0];
        Ok(match body {
            Body::Negate => return arithmetic::negated(self, value),
            Body::Math(math) => return math::call(math, ty, value),
            Body::CastNumber => return cast::number(self, value),
            Body::CastText => cast::text(ty, value),
            Body::FromJson => return json::from_json(self, value),
            Body::FromBlob => return blob::checked(self, value),
            Body::Same => Some(value.to_vec()),
            Body::MinTimeuuid => time::milliseconds(ty, value).map(|ms| min_timeuuid(ms).to_vec()),
            Body::MaxTimeuuid => time::milliseconds(ty, value).map(|ms| max_timeuuid(ms).to_vec()),
            Body::Convert => {
                time::milliseconds(ty, value).map(|ms| time::from_milliseconds(&self.result, ms))
            }
            Body::MapKeys => return collection::map_keys(value),
            Body::MapValues => return collection::map_values(value),
            Body::CollectionCount => collection::count(value),
            Body::CollectionAggregate(name) => return collection::aggregate(name, ty, value),
            _ => None,
        })
    }
}

fn partition_token(values: &[&[u8]]) -> Result<Option<Vec<u8>>, FunctionError> {
    let mut key = Vec::new();
    compose_partition_key(values.iter().copied(), &mut key)
        .map_err(|error| FunctionError::invalid(error.to_string()))?;
    Ok(Some(token(&key).to_be_bytes().to_vec()))
}
