//! What names and labels have in common: each is a text that was checked when it was made.

/// Implements the conversions of a type that holds an `Arc<str>` and checks it in `new`.
macro_rules! checked_text {
    ($name:ident, $error:ident) => {
        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<$name, $error> {
                $name::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(checked: $name) -> String {
                checked.0.as_ref().to_owned()
            }
        }
    };
}

pub(crate) use checked_text;
