//! The recorded answers follow from the model, by a margin, and from every part of it.

use super::*;
use crate::{
    fingerprint::Fingerprint,
    gguf::{Header, Limits},
    header::Progress,
};

/// How far the right token must lead, in standard deviations of what the words get. What engines round is a small
/// part of that; see the test below.
const MARGIN: f32 = 0.8;

fn models() -> Vec<(String, CheckModel)> {
    let mut models = vec![("MIXED".to_owned(), CheckModel::mixed())];
    for (kind, _) in ANSWERS {
        models.push((kind.to_string(), CheckModel::of(*kind).unwrap()));
    }
    models
}

fn deviation(logits: &[f32]) -> f32 {
    let words = &logits[FIRST_WORD as usize..];
    let count = words.len() as f32;
    let mean = words.iter().sum::<f32>() / count;
    let squares: f32 = words.iter().map(|word| (word - mean).powi(2)).sum();
    (squares / count).sqrt()
}

/// How far the largest leads, in standard deviations.
fn margin(logits: &[f32]) -> f32 {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|one, other| other.total_cmp(one));
    (sorted[0] - sorted[1]) / deviation(logits)
}

/// Why a prompt is none for this model; otherwise what follows it.
fn judged(reference: &Reference, prompt: &[u32]) -> Result<[u32; 2], String> {
    let logits = reference.logits(prompt, None);
    let least = logits
        .iter()
        .map(|one| margin(one))
        .fold(f32::INFINITY, f32::min);
    if least < MARGIN {
        return Err(format!("it leads by {least} only"));
    }
    let answer = reference.follow(prompt, None);
    if answer.iter().any(|token| *token < FIRST_WORD) {
        return Err(format!("{answer:?} are not words"));
    }
    for part in Part::ALL {
        if reference.follow(prompt, Some(part)) == answer {
            return Err(format!("{part:?} is not needed"));
        }
    }
    Ok(answer)
}

/// The first seed from 0 that does.
fn search(reference: &Reference) -> (u64, [u32; 2]) {
    (0..)
        .find_map(|seed| Some((seed, judged(reference, &prompt(seed)).ok()?)))
        .unwrap()
}

#[test]
fn each_recorded_answer_leads_by_a_margin_and_needs_every_part_of_the_model() {
    let mut wrong = Vec::new();
    for (name, model) in models() {
        let reference = model.reference();
        let judged = judged(&reference, model.prompt());
        if judged != Ok(model.answer()) {
            let (seed, tokens) = search(&reference);
            wrong.push(format!(
                "{name}: {judged:?}; it should be answer({seed}, {tokens:?})"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rounding_inputs_as_engines_do_moves_a_fifth_of_the_margin_at_most() {
    for (name, model) in models() {
        let exact = model.reference();
        let rounded = exact.clone().with_rounding(Rounding::Eight);
        let pairs = exact
            .logits(model.prompt(), None)
            .into_iter()
            .zip(rounded.logits(model.prompt(), None));
        for (exact, rounded) in pairs {
            let unit = deviation(&exact);
            let words = FIRST_WORD as usize..;
            let moved = exact[words.clone()]
                .iter()
                .zip(&rounded[words])
                .map(|(one, other)| (one - other).abs() / unit)
                .fold(0.0, f32::max);
            assert!(moved < MARGIN / 5.0, "{name}: {moved}");
            assert!(moved > 0.0, "{name}: nothing was rounded");
        }
    }
}

#[test]
fn a_file_holds_what_it_says_and_is_the_same_each_time() {
    let mut recorded = FILES.iter();
    for (name, model) in models() {
        let mut file = Vec::new();
        model.write(&mut file).unwrap();
        let found = (name.as_str(), Fingerprint::of_bytes(&file));
        assert_eq!(recorded.next(), Some(&found));
        let Progress::Done(header) = Header::parse(&file, &Limits::default()).unwrap() else {
            panic!("{name}: its header does not end");
        };
        let end = header
            .tensors
            .iter()
            .map(|tensor| tensor.offset + tensor.bytes().unwrap().0);
        assert_eq!(
            header.data_offset + end.max().unwrap(),
            file.len() as u64,
            "{name}"
        );
        let matrices = header
            .tensors
            .iter()
            .filter(|tensor| tensor.dimensions.len() == 2);
        let kinds: BTreeSet<TensorType> = matrices.map(|tensor| tensor.kind).collect();
        assert_eq!(kinds, model.types(), "{name}");
    }
    assert_eq!(recorded.next(), None);
}

#[test]
fn types_of_published_weights_are_in_the_first_model_and_others_have_one_of_their_own() {
    let mixed = CheckModel::mixed().types();
    let kinds = [
        TensorType::F16,
        TensorType::Q8_0,
        TensorType::Q4_0,
        TensorType::Q4_K,
        TensorType::Q6_K,
    ];
    assert_eq!(mixed, BTreeSet::from(kinds));
    for kind in quant::TYPES {
        assert!(CheckModel::is_provable(*kind));
        assert_eq!(
            CheckModel::of(*kind).unwrap().types(),
            BTreeSet::from([*kind])
        );
    }
    let iq2_xxs = TensorType(16);
    assert!(!CheckModel::is_provable(iq2_xxs));
    assert!(CheckModel::of(iq2_xxs).is_none());
}

#[test]
fn answers_are_written_as_words() {
    assert_eq!(CheckModel::text(&[300, 310]), " w41 w51");
}

/// The fingerprint of each file.
const FILES: &[(&str, Fingerprint)] = &[
    ("MIXED", Fingerprint(0xded8_e35a_dcfd_46c2)),
    ("F32", Fingerprint(0x008a_0d94_b100_ad18)),
    ("F16", Fingerprint(0xdae9_adb8_f7dc_0feb)),
    ("BF16", Fingerprint(0xe2d9_43c1_410e_cba6)),
    ("Q4_0", Fingerprint(0xc59a_3600_ac60_2c66)),
    ("Q4_1", Fingerprint(0x578c_aaf3_3be3_ce77)),
    ("Q5_0", Fingerprint(0xc677_fa3b_f84e_ace1)),
    ("Q5_1", Fingerprint(0x62c5_3fca_f1d1_e9f3)),
    ("Q8_0", Fingerprint(0x5215_5d9e_bd69_1e83)),
    ("Q2_K", Fingerprint(0x3199_ec94_d0ab_5408)),
    ("Q3_K", Fingerprint(0x225b_f47c_7287_4a56)),
    ("Q4_K", Fingerprint(0xd20d_6119_5f1e_78a5)),
    ("Q5_K", Fingerprint(0xd9d8_6dbb_ce9c_f829)),
    ("Q6_K", Fingerprint(0x8e70_2c19_10cb_4769)),
    ("IQ4_NL", Fingerprint(0x2d8d_be6b_d59e_e902)),
    ("IQ4_XS", Fingerprint(0xa3e9_93ef_9484_2ba8)),
    ("MXFP4", Fingerprint(0xfa9e_72b2_cfb0_ec60)),
];
