//! Policies with parameters, as users write them: of steering and of threads. Accepted values are those that were
//! given; a refusal changes nothing and says why.
#![no_main]

use std::sync::LazyLock;

use heddle_agent::classes::Rule;
use heddle_core::Policy;
use heddle_policies::{Visitor, list, with_policy};
use heddle_steer::policy::{
    Object, pairs, params, read, set_params, shipped, shipped_names, split_params,
};
use libfuzzer_sys::fuzz_target;

/// The shipped policies with parameters.
static OBJECTS: LazyLock<Vec<Object>> = LazyLock::new(|| {
    let all = shipped_names().filter_map(shipped).filter_map(|bytes| read(bytes).ok());
    all.filter(|object| !params(object).is_empty()).collect()
});

struct Name;

impl Visitor for Name {
    type Out = &'static str;
    fn visit<P: Policy>(self, _: P) -> &'static str {
        P::NAME
    }
}

fn steering(text: &str) {
    let (policy, given) = split_params(text);
    assert!(text.starts_with(policy) && text.ends_with(given));
    let Ok(given) = pairs(given).map_err(|error| error.to_string()) else { return };
    for object in &*OBJECTS {
        let mut changed = object.clone();
        match set_params(&mut changed, &given) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(changed, *object, "what is refused changes nothing");
            }
            Ok(_) => {
                let after = params(&changed);
                for param in &after {
                    assert!((param.least..=param.most).contains(&param.value), "{param:?}");
                }
                let others = after.iter().zip(params(object)).filter(|(a, b)| a.value != b.value);
                assert!(others.count() <= given.len());
            }
        }
    }
}

fn threads(text: &str) {
    match with_policy(text, Name) {
        Ok(name) => assert!(list().iter().any(|info| info.name == name)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fuzz_target!(|text: &str| {
    steering(text);
    threads(text);
    if let Err(error) = text.parse::<Rule>() {
        assert!(!error.to_string().is_empty());
    }
});
