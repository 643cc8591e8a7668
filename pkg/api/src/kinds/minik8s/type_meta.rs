//! `apiVersion` and `kind` of our own types: fields without a value of their own, so that they are always right.

use k8s_openapi::Resource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// The `apiVersion` of `T`: written as [`Resource::API_VERSION`], and nothing else is read.
pub struct ApiVersion<T>(PhantomData<T>);

/// The `kind` of `T`: written as [`Resource::KIND`], and nothing else is read.
pub struct KindName<T>(PhantomData<T>);

/// What a marker stands for.
trait Marker {
    const TEXT: &'static str;
    const NEW: Self;
}

impl<T: Resource> Marker for ApiVersion<T> {
    const TEXT: &'static str = T::API_VERSION;
    const NEW: Self = ApiVersion(PhantomData);
}

impl<T: Resource> Marker for KindName<T> {
    const TEXT: &'static str = T::KIND;
    const NEW: Self = KindName(PhantomData);
}

fn read<'de, M: Marker, D: Deserializer<'de>>(deserializer: D) -> Result<M, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    if text == M::TEXT { Ok(M::NEW) } else { Err(D::Error::invalid_value(Unexpected::Str(&text), &M::TEXT)) }
}

macro_rules! marker {
    ($name:ident) => {
        impl<T: Resource> Default for $name<T> {
            fn default() -> Self {
                Self::NEW
            }
        }

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        impl<T> PartialEq for $name<T> {
            fn eq(&self, _: &Self) -> bool {
                true
            }
        }

        impl<T: Resource> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Self::TEXT)
            }
        }

        impl<T: Resource> Serialize for $name<T> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(Self::TEXT)
            }
        }

        impl<'de, T: Resource> Deserialize<'de> for $name<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                read(deserializer)
            }
        }

        impl<T> JsonSchema for $name<T> {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string"})
            }
        }
    };
}

marker!(ApiVersion);
marker!(KindName);
