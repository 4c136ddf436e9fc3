package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SiteSpec   `json:"spec,omitempty"`
	Status            SiteStatus `json:"status,omitempty"`
}

type SiteSpec struct {
	Image    string `json:"image,omitempty"`
	Replicas int32  `json:"replicas"`
	Text     string `json:"text,omitempty"`
}

type SiteStatus struct {
	ReadyReplicas int32              `json:"readyReplicas"`
	Conditions    []metav1.Condition `json:"conditions,omitempty"`
}

func (s *Site) DeepCopyObject() runtime.Object {
	site := *s
	site.ObjectMeta = *s.ObjectMeta.DeepCopy()
	site.Status.Conditions = append([]metav1.Condition(nil), s.Status.Conditions...)
	return &site
}

type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}

func (l *SiteList) DeepCopyObject() runtime.Object {
	list := SiteList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		list.Items = append(list.Items, *l.Items[i].DeepCopyObject().(*Site))
	}
	return &list
}
