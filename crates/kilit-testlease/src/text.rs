//! Core's types as the text that they already have, for serde.

/// Types whose `Display` reads back.
pub(crate) mod display {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
        from: D,
    ) -> Result<T, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Lock names, encoded.
pub(crate) mod name {
    use kilit_core::LockName;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(name: &LockName, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(name)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LockName, D::Error> {
        LockName::decode(&String::deserialize(from)?)
            .ok_or_else(|| D::Error::custom("not an encoded lock name"))
    }
}

/// Shares, as units and capacity.
pub(crate) mod share {
    use kilit_core::Share;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(share: &Share, to: S) -> Result<S::Ok, S::Error> {
        (share.units(), share.capacity()).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Share, D::Error> {
        match <(u32, u32)>::deserialize(from)? {
            (u32::MAX, u32::MAX) => Ok(Share::EXCLUSIVE),
            (1, u32::MAX) => Ok(Share::SHARED),
            (units, capacity) => Share::permits(units, capacity).map_err(D::Error::custom),
        }
    }
}
