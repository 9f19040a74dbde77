//! Keys of a document, as people name them: parts with dots between them, and models by their names.

use serde_json::{Map, Value};

use super::wrong;
use crate::failure::{Cause, Failure};

/// Reads YAML or JSON; nothing says nothing.
pub(super) fn parsed(text: &str) -> Result<Value, Failure> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    serde_saphyr::from_str(text)
        .map_err(|error| Failure::new(Cause::Usage, format!("{text:?} is no YAML: {error}")))
}

pub(super) fn written(document: &Value) -> Result<String, Failure> {
    if document.as_object().is_some_and(Map::is_empty) {
        return Ok(String::new());
    }
    serde_saphyr::to_string(document)
        .map_err(|error| Failure::new(Cause::Refused, error.to_string()))
}

/// What stands at a key.
pub(super) fn get(document: &Value, key: &str) -> Result<Value, Failure> {
    let mut place = document;
    for part in parts(key)? {
        place = match place {
            Value::Object(map) => map.get(part),
            Value::Array(models) => models.iter().find(|one| is_named(one, part)),
            _ => None,
        }
        .ok_or_else(|| wrong(key, "the document says nothing of it"))?;
    }
    Ok(place.clone())
}

/// Has this stand at a key.
pub(super) fn set(document: &mut Value, key: &str, value: Value) -> Result<(), Failure> {
    let parts = parts(key)?;
    let Some((last, before)) = parts.split_last() else {
        return Err(wrong(key, "it is no key"));
    };
    let mut place = document;
    for (depth, part) in before.iter().enumerate() {
        place = inside(place, part, depth == 0 && *part == MODELS)
            .ok_or_else(|| wrong(key, "it goes into what has no parts"))?;
    }
    match place {
        Value::Object(map) => {
            map.insert((*last).to_owned(), value);
            Ok(())
        }
        Value::Array(models) => {
            let Value::Object(mut model) = value else {
                return Err(wrong(
                    key,
                    "a model is a map, such as {source: file:/m.gguf}",
                ));
            };
            model.insert(NAME.to_owned(), Value::String((*last).to_owned()));
            let model = Value::Object(model);
            match models.iter_mut().find(|one| is_named(one, last)) {
                Some(one) => *one = model,
                None => models.push(model),
            }
            Ok(())
        }
        _ => Err(wrong(key, "it goes into what has no parts")),
    }
}

/// Has nothing stand at a key, nor above it when that was all.
pub(super) fn unset(document: &mut Value, key: &str) -> Result<(), Failure> {
    let parts = parts(key)?;
    if remove(document, &parts) {
        return Ok(());
    }
    Err(wrong(key, "the document says nothing of it"))
}

fn remove(place: &mut Value, parts: &[&str]) -> bool {
    let Some((first, rest)) = parts.split_first() else {
        return false;
    };
    match place {
        Value::Object(map) => {
            let Some(inner) = map.get_mut(*first) else {
                return false;
            };
            if rest.is_empty() {
                return map.remove(*first).is_some();
            }
            let removed = remove(inner, rest);
            if is_empty(inner) {
                map.remove(*first);
            }
            removed
        }
        Value::Array(models) => {
            let Some(at) = models.iter().position(|one| is_named(one, first)) else {
                return false;
            };
            if rest.is_empty() {
                models.remove(at);
                return true;
            }
            models.get_mut(at).is_some_and(|one| remove(one, rest))
        }
        _ => false,
    }
}

fn inside<'v>(place: &'v mut Value, part: &str, is_list: bool) -> Option<&'v mut Value> {
    match place {
        Value::Object(map) => {
            let empty = || match is_list {
                true => Value::Array(Vec::new()),
                false => Value::Object(Map::new()),
            };
            Some(map.entry(part).or_insert_with(empty))
        }
        Value::Array(models) => models.iter_mut().find(|one| is_named(one, part)),
        _ => None,
    }
}

fn parts(key: &str) -> Result<Vec<&str>, Failure> {
    // What comes after `models.` is a name: names may have dots, and nothing beneath them is a key of its own.
    let parts: Vec<&str> = match key.split_once('.') {
        Some((MODELS, name)) => vec![MODELS, name],
        _ => key.split('.').collect(),
    };
    if parts.iter().any(|part| part.is_empty()) {
        return Err(wrong(key, "it is no key"));
    }
    Ok(parts)
}

fn is_named(model: &Value, name: &str) -> bool {
    model.get(NAME).and_then(Value::as_str) == Some(name)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

const MODELS: &str = "models";
const NAME: &str = "name";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_set_is_got_and_what_is_unset_leaves_nothing() {
        let mut document = parsed("# mine\nqueue: {max_total: 8}\n").unwrap();
        set(&mut document, "queue.max_per_model", json!(4)).unwrap();
        set(&mut document, "engines.llamacpp.version", json!("b1")).unwrap();
        let model = json!({"source": "file:/m.gguf"});
        set(&mut document, "models.org/m-1.5", model).unwrap();
        assert_eq!(
            document,
            json!({
                "queue": {"max_total": 8, "max_per_model": 4},
                "engines": {"llamacpp": {"version": "b1"}},
                "models": [{"source": "file:/m.gguf", "name": "org/m-1.5"}],
            })
        );
        let got = get(&document, "models.org/m-1.5").unwrap();
        assert_eq!(got["source"], "file:/m.gguf");
        assert_eq!(get(&document, "queue.max_total").unwrap(), 8);
        for key in [
            "models.org/m-1.5",
            "engines.llamacpp.version",
            "queue.max_total",
            "queue.max_per_model",
        ] {
            unset(&mut document, key).unwrap();
        }
        assert_eq!(document, json!({}));
        assert_eq!(written(&document).unwrap(), "");
    }

    #[test]
    fn what_is_no_key_or_not_there_is_refused_by_its_name() {
        let mut document = json!({"queue": {"max_total": 8}});
        let before = document.clone();
        for failure in [
            get(&document, "queue.frob").unwrap_err(),
            get(&document, "").unwrap_err(),
            unset(&mut document, "models.tiny").unwrap_err(),
            unset(&mut document, "queue.max_total.deep").unwrap_err(),
            set(&mut document, "queue.max_total.deep", json!(1)).unwrap_err(),
            set(&mut document, "queue..x", json!(1)).unwrap_err(),
        ] {
            let shown = format!("{failure:?}");
            assert!(shown.contains(": "), "{shown}");
        }
        assert_eq!(document, before);
        assert!(set(&mut document, "models.tiny", json!(3)).is_err());
    }
}
